"""Reverse: the Transformer writes random letters backwards. Its attention is a diagonal that one can see."""

from .translating import TRAINING, transformer


class Reverse:
    """See the docstring of this package."""

    DEFAULTS = {**TRAINING, "steps": 500, "length": 12}
    name, unit, count = "reverse", "tokens", None

    def __init__(self, args):
        from ...data import ReverseTask

        self.args, self.task = args, ReverseTask(args.length, seed=args.seed)
        self.about = {"longest": args.length, "example": self.task.train[0]}
        self.vocabularies = (self.task.tokenizer.vocabulary,) * 2

    def model(self):
        """The Transformer of the options, with room for twice the longest."""
        return transformer(self.args, *map(len, self.vocabularies), max_len=max(64, 2 * self.task.longest))

    def batches(self):
        """Batches of the training split."""
        from ...data import Batches

        return Batches(*self.task.ids(self.task.train), self.args.batch_size, seed=self.args.seed)

    def loss(self):
        """Cross-entropy, in which padding does not count."""
        from ...losses import CrossEntropy

        return CrossEntropy(ignore_index=0)

    def introduction(self, model):
        """Sizes, and an example."""
        example = self.task.train[0]
        return (
            f"reverse: {len(self.task.train):,} sequences of 3 to {self.task.longest} letters to learn from, "
            f"{model.n_parameters():,} parameters\n  for example  {example}  =  {example[::-1]}"
        )

    def test(self, model):
        """Reverse the test split, print how much is right and five examples; return the figures."""
        from ...training import translate

        task = self.task
        answers = translate(model, task.tokenizer, task.tokenizer, task.test, max_len=task.longest + 2)
        right = [answer == text[::-1] for answer, text in zip(answers, task.test, strict=True)]
        share = 100 * sum(right) / len(right)
        print(f"exact match: {sum(right):,} of {len(right):,} unseen sequences right ({share:.1f} %)")
        shown = [right.index(False)] if not all(right) else []  # one mistake, if there is any, is worth seeing
        shown += [i for i in range(5) if i not in shown][: 5 - len(shown)]
        width = max(len(task.test[i]) for i in shown)
        for i in shown:
            print(f"  {'right' if right[i] else 'WRONG'}  {task.test[i]:<{width}}  {answers[i]}")
        return {"texts": len(right), "texts_right": sum(right)}

    def attention(self, model):
        """Where the last decoder layer looks while it reverses one of the longest test sequences."""
        from ... import plot
        from ...training import attention_of

        text = max(self.task.test, key=len)
        source, target, weights = attention_of(model, self.task.tokenizer, self.task.tokenizer, text)
        title = f'Where the last decoder layer looks while it reverses "{text}"'
        return plot.attention(weights, target, source, title=title)

    def next(self, folder, where):
        """Reverse a sequence."""
        return f"transformer-np translate {where}{self.task.test[0]}"
