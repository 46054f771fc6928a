"""One training step of any model: forward, loss, backward, clip, update."""

from ..optim import clip_grad_norm


class TrainStep:
    """`loss = step(*inputs, targets)`: forward, loss, backward, clip by global norm, update; returns the loss, a float.

    The model is any Module; all arguments but the last go to its forward, the last to the loss.
    `clip` is the largest gradient norm allowed (None: no clipping). Nothing is updated where a gradient is not finite
    (FloatingPointError when clipping).
    """

    def __init__(self, model, loss_fn, optimizer, clip=None):
        self.model, self.loss_fn, self.optimizer, self.clip = model, loss_fn, optimizer, clip

    def __call__(self, *batch):
        *inputs, targets = batch
        self.optimizer.zero_grad()
        loss = self.loss_fn.forward(self.model.forward(*inputs), targets)
        self.model.backward(self.loss_fn.backward())
        if self.clip is not None:
            clip_grad_norm(self.optimizer.parameters, self.clip)
        self.optimizer.step()
        return loss
