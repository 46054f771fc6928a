"""Text: a GPT guesses the next character of Python's own help texts, or of a file."""

import math

SAMPLE = 300  # characters written at the end
SHOWN = {" ": "␣", "\n": "↵"}


class Text:
    """See the docstring of this package."""

    DEFAULTS = {
        "d_model": 64,
        "heads": 4,
        "layers": 2,
        "d_ff": 256,
        "dropout": 0.0,
        "steps": 900,
        "batch_size": 16,
        "lr": 5e-3,
        "length": 64,
        "file": None,
    }
    name, unit = "text", "characters"

    def __init__(self, args):
        from ...data import TextTask

        self.args = args
        self.task = TextTask(length=args.length) if args.file is None else TextTask.from_file(args.file, args.length)
        self.about = {"text": args.file or "pydoc_data.topics"}
        self.vocabularies = (self.task.tokenizer.vocabulary,)

    def model(self):
        """The GPT of the options, which sees as many characters as a stretch has."""
        from ...models import GPT

        return GPT(
            len(self.task.tokenizer),
            d_model=self.args.d_model,
            n_heads=self.args.heads,
            n_layers=self.args.layers,
            d_ff=self.args.d_ff,
            dropout=self.args.dropout,
            max_len=self.task.length,
            seed=self.args.seed,
        )

    def batches(self):
        """Stretches of the training part."""
        from ...data import TextBatches

        return TextBatches(self.task, self.args.batch_size, seed=self.args.seed)

    def loss(self):
        """Cross-entropy: every character counts."""
        from ...losses import CrossEntropy

        return CrossEntropy()

    @staticmethod
    def count(ids, targets):
        """How many characters a batch has."""
        return targets.size

    def introduction(self, model):
        """Sizes."""
        task = self.task
        return (
            f"text ({self.about['text']}): {len(task.train):,} characters to learn from, {len(task.validation):,} held "
            f"out, {len(task.tokenizer)} tokens, {model.n_parameters():,} parameters"
        )

    def test(self, model):
        """Print the loss on the held-out part, beside what frequencies alone give, and a sample; return the figures."""
        unigram, loss = self.task.unigram_loss(), self._validation_loss(model)
        print(
            f"validation loss: {loss:.3f} nats a character ({loss / math.log(2):.3f} bits); "
            f"by how frequent each is: {unigram:.3f} ({unigram / math.log(2):.3f} bits)"
        )
        text = self._sample(model)
        print("it writes:\n" + "\n".join(f"  | {line}" for line in text.splitlines()))
        return {"validation_loss": loss, "unigram_loss": unigram, "sample": text}

    def _validation_loss(self, model):
        """Mean loss over the held-out part, some stretches at a time."""
        from ...module import inference

        ids, targets = self.task.validation_stretches()
        loss, training, total = self.loss(), model.training, 0.0
        model.eval()
        with inference():
            for i in range(0, len(ids), 64):
                part = slice(i, i + 64)
                total += loss.forward(model.forward(ids[part]), targets[part], n_tokens=targets.size)
        model.train(training)
        return total

    def _sample(self, model):
        """Write on from the first characters of the held-out part."""
        from ...data.vocabulary import SPECIAL_TOKENS
        from ...training import write_on

        start = self.task.validation[: min(16, self.task.length)].tolist()
        options = {"temperature": 0.8, "forbid": range(len(SPECIAL_TOKENS)), "seed": self.args.seed}
        return self.task.tokenizer.decode([*start, *write_on(model, start, SAMPLE, **options)])

    def attention(self, model):
        """Where the last layer looks while it reads the first held-out characters."""
        from ... import plot

        ids = self.task.validation[: min(24, self.task.length)]
        training = model.training
        model.eval()
        try:
            model.forward(ids[None])
            weights = model.layers[-1].self_attention.weights[0]  # (H, T, T)
        finally:
            model.train(training)
            model.forget()
        characters = [SHOWN.get(c, c) for c in self.task.tokenizer.vocabulary.decode(ids)]
        return plot.attention(
            weights, characters, characters, title="Where the last layer looks, character by character"
        )

    def next(self, folder, where):
        """Let it write."""
        return f'transformer-np generate {where}"The "'
