"""The task of `transformer-np train --task digits`: read handwritten digits from images of 8 by 8."""

import numpy as np


class DigitsTask:
    """scikit-learn's 1,797 handwritten digits; a fifth of them, drawn at random, is held out.

    Attributes: images and labels to learn from, `train_images` (N, 1, 8, 8) float32 from -1 (white) to 1 (black) and
    `train_labels` (N,), and the held-out ones, `test_images` and `test_labels`. `seed` fixes the drawing.
    Raises ImportError, with the command that helps, where scikit-learn is not installed.
    Source: Alpaydin and Kaynak 1998, the test part of the UCI set "Optical Recognition of Handwritten Digits".
    """

    n_classes = 10

    def __init__(self, seed=0):
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise ImportError("the task digits needs scikit-learn: pip install scikit-learn") from error
        digits = load_digits()
        images, labels = (digits.images[:, None] / 8 - 1).astype(np.float32), digits.target  # (N, 1, 8, 8), (N,)
        order = np.random.default_rng(seed).permutation(len(labels))
        held_out, seen = np.split(order, [len(order) // 5])
        self.train_images, self.train_labels = images[seen], labels[seen]
        self.test_images, self.test_labels = images[held_out], labels[held_out]


class ImageBatches:
    """Images with their labels, shuffled anew each epoch. Raises ValueError for a batch_size below 1."""

    def __init__(self, images, labels, batch_size, seed=0):
        if batch_size < 1:
            raise ValueError(f"ImageBatches: got batch_size {batch_size}, expected 1 or more")
        self.images, self.labels, self.batch_size, self.seed = images, labels, batch_size, seed

    def __len__(self):
        """The number of batches in an epoch."""
        return -(-len(self.labels) // self.batch_size)

    def epoch(self, number=0):
        """Yield `(images, labels)` for every batch of epoch `number`: each image once, in that epoch's order."""
        order = np.random.default_rng([self.seed, number]).permutation(len(self.labels))
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            yield self.images[rows], self.labels[rows]
