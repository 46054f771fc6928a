"""Digits: a ViT reads handwritten digits, images of 8 by 8 cut into patches of 2 by 2."""

PATCH = 2


class Digits:
    """See the docstring of this package."""

    DEFAULTS = {
        "d_model": 48,
        "heads": 4,
        "layers": 2,
        "d_ff": 96,
        "dropout": 0.1,
        "steps": 700,
        "batch_size": 64,
        "lr": 2e-3,
    }
    name, unit, vocabularies = "digits", "images", ()

    def __init__(self, args):
        from ...data import DigitsTask

        self.args, self.task = args, DigitsTask(seed=args.seed)
        self.about = {"images": "scikit-learn's digits, from -1 (white) to 1 (black)"}

    def model(self):
        """The ViT of the options."""
        from ...models import ViT

        return ViT(
            image_size=8,
            patch_size=PATCH,
            n_channels=1,
            n_classes=self.task.n_classes,
            d_model=self.args.d_model,
            n_heads=self.args.heads,
            n_layers=self.args.layers,
            d_ff=self.args.d_ff,
            dropout=self.args.dropout,
            seed=self.args.seed,
        )

    def batches(self):
        """Batches of the training images."""
        from ...data import ImageBatches

        return ImageBatches(self.task.train_images, self.task.train_labels, self.args.batch_size, seed=self.args.seed)

    def loss(self):
        """Cross-entropy with label smoothing: 1,438 images are few."""
        from ...losses import CrossEntropy

        return CrossEntropy(label_smoothing=0.1)

    @staticmethod
    def count(images, labels):
        """How many images a batch has."""
        return len(labels)

    def introduction(self, model):
        """Sizes."""
        return (
            f"digits: {len(self.task.train_labels):,} images of 8 by 8 to learn from, {len(self.task.test_labels)} "
            f"held out, {model.n_parameters():,} parameters"
        )

    def test(self, model):
        """Read the held-out images; print how many are right, and what was taken for what."""
        from ...module import inference

        labels = self.task.test_labels
        training = model.training
        model.eval()
        with inference():
            answers = model.forward(self.task.test_images).argmax(-1)
        model.train(training)
        right = answers == labels
        print(f"accuracy: {right.sum():,} of {len(labels):,} held-out images right ({100 * right.mean():.1f} %)")
        wrong = [f"{label} as {answer}" for label, answer in zip(labels, answers, strict=True) if label != answer]
        if wrong:
            more = f" and {len(wrong) - 8} more" if len(wrong) > 8 else ""
            print(f"  taken for another digit: {', '.join(wrong[:8])}{more}")
        return {"images": len(labels), "images_right": int(right.sum())}

    def attention(self, model):
        """Held-out images, and over each how much the class token of the last layer looks at its patches."""
        import numpy as np

        from ...plot.figures import figure

        first_of_each = np.unique(self.task.test_labels, return_index=True)[1]
        chosen = np.sort(first_of_each)[:6]  # six different digits
        images, labels, n = self.task.test_images[chosen], self.task.test_labels[chosen], len(chosen)
        training = model.training
        model.eval()
        try:
            answers = model.forward(images).argmax(-1)
            weights = model.encoder.layers[-1].self_attention.weights  # (n, H, 1 + N, 1 + N)
        finally:
            model.train(training)
            model.forget()
        looks = weights[:, :, 0, 1:].mean(1).reshape(n, 8 // PATCH, 8 // PATCH)
        fig, axes = figure(n, 2, size=(1.3, 1.4))
        for i in range(n):
            axes[0, i].imshow(images[i, 0], cmap="Greys", vmin=-1, vmax=1)
            axes[0, i].set_title(f"{labels[i]}, read as {answers[i]}", fontsize=8)
            axes[1, i].imshow(looks[i], cmap="Blues", vmin=0)
        for ax in axes.flat:
            ax.set_axis_off()
        fig.suptitle(
            "Held-out digits, and where the class token of the last layer looks (mean of the heads)", fontsize=9
        )
        return fig

    def next(self, folder, where):
        """See inside."""
        return f"transformer-np step {where or '--task digits '}0"
