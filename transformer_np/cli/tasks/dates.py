"""Dates: the Transformer translates written dates from one language to another."""

from .translating import TRAINING, transformer


class Dates:
    """See the docstring of this package."""

    DEFAULTS = {**TRAINING, "steps": 500, "source": "en", "target": "ko"}
    unit, count = "tokens", None

    def __init__(self, args):
        from ...data import DateTask

        self.args, self.task = args, DateTask(args.source, args.target, seed=args.seed)
        source, target = self.task.source_locale, self.task.target_locale
        self.name, self.example = f"{source}-{target}", self.task.train[0]
        self.about = {"from": source, "to": target, "example": self.example.source}
        self.vocabularies = (self.task.source_tokenizer.vocabulary, self.task.target_tokenizer.vocabulary)

    def model(self):
        """The Transformer of the options, for these vocabularies."""
        return transformer(self.args, *map(len, self.vocabularies))

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
        sizes = " and ".join(str(len(vocabulary)) for vocabulary in self.vocabularies)
        return (
            f"{self.about['from']} to {self.about['to']}: {len(self.task.train):,} pairs to learn from, "
            f"{sizes} tokens, {model.n_parameters():,} parameters\n"
            f"  for example  {self.example.source}  =  {self.example.target}"
        )

    def test(self, model):
        """Translate the test split, print how much is right and five examples; return the figures."""
        from ...training import translate

        task = self.task
        longest = max(map(len, task.ids(task.test)[1]))
        answers = translate(
            model,
            task.source_tokenizer,
            task.target_tokenizer,
            [pair.source for pair in task.test],
            max_len=longest + 2,  # one more than the longest with its end token: what gets there is wrong anyway
        )
        right = [answer == pair.target for answer, pair in zip(answers, task.test, strict=True)]
        dates = {pair.date for pair in task.test}
        wrong_dates = {pair.date for pair, ok in zip(task.test, right, strict=True) if not ok}
        n_right = len(dates) - len(wrong_dates)
        print(
            f"exact match: {n_right:,} of {len(dates):,} unseen dates right in both formats "
            f"({100 * n_right / len(dates):.1f} %); {sum(right):,} of {len(right):,} texts"
        )
        shown = [right.index(False)] if not all(right) else []  # one mistake, if there is any, is worth seeing
        shown += [i for i in range(0, len(right), len(right) // 7) if i not in shown][: 5 - len(shown)]
        for i in sorted(shown):
            pair, mark = task.test[i], "right" if right[i] else "WRONG"
            print(f"  {pair.source}\n    {mark}    {answers[i]}\n    expected {pair.target}")
        return {"dates": len(dates), "dates_right": n_right, "texts": len(right), "texts_right": sum(right)}

    def attention(self, model):
        """Where the last decoder layer looks while it translates one test date."""
        from ... import plot
        from ...training import attention_of

        text = self.task.test[0].source
        source, target, weights = attention_of(model, self.task.source_tokenizer, self.task.target_tokenizer, text)
        title = f'Where the last decoder layer looks while it translates "{text}"'
        return plot.attention(weights, target, source, title=title)

    def next(self, folder, where):
        """Translate a date."""
        return f'transformer-np translate {where}"{self.task.test[0].source}"'
