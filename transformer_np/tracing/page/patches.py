"""Images in a trace: how a ViT cuts them into patches, and what the patches are called."""

from dataclasses import dataclass

CLASS = "[class]"


@dataclass(frozen=True)
class Patches:
    """The cut of the images of a trace. module: the layer that cuts. images: the step that holds them, (B, C, h, w).

    size: of a patch, P. rows, columns: how many patches there are.
    """

    module: str
    images: str
    size: int
    rows: int
    columns: int

    @property
    def tokens(self):
        """Labels as `Axes` takes them: "src" for the patches alone, "tgt" for those after the class token."""
        labels = [f"{i},{j}" for i in range(self.rows) for j in range(self.columns)]
        return {"src": [labels], "tgt": [[CLASS, *labels]]}

    def is_picture(self, array, module):
        """Say whether an array has the pixels of the images where they are in the images."""
        return array.ndim == 4 and module in ("", self.module)


def patches_of(trace):
    """Return the Patches of the first layer that cuts images, or None."""
    from ..run import objects_in

    for module, layer in objects_in(trace.model).values():
        given = f"{module}.x" if module else "x"
        if hasattr(layer, "patch_size") and given in trace:
            step, p = trace.step(given), layer.patch_size
            height, width = step.value.shape[-2:]
            return Patches(module, step.name, p, height // p, width // p)
    return None
