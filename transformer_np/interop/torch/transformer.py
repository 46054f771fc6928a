"""The PyTorch side of a Transformer: torch.nn.Transformer with the embeddings, positions and output that it lacks.

Imported where it is used, so that the package itself never needs PyTorch.
"""

import math

import torch
from torch import nn

from ...layers.positions import SinusoidalPositions


class TransformerWithEmbeddings(nn.Module):
    """ids -> embeddings * scale + positions -> torch.nn.Transformer -> logits; batch first.

    Parts: `src_embedding` and `tgt_embedding` are torch.nn.Embedding, `transformer` a torch.nn.Transformer, `output` a
    torch.nn.Linear (D, V). `positions` is a SinusoidalPositions of this package, or a pair of torch.nn.Embedding, the
    learned rows for source and target. Tied weights are one torch Parameter under several names. `pad_id` is the
    token that is never looked at. The embeddings are scaled by sqrt(D).
    """

    def __init__(self, transformer, src_embedding, tgt_embedding, output, positions, pad_id=0, dropout=0.0):
        super().__init__()
        self.src_embedding, self.tgt_embedding = src_embedding, tgt_embedding
        self.transformer, self.output = transformer, output
        if isinstance(positions, SinusoidalPositions):
            self.sinusoids, self.src_positions, self.tgt_positions = positions, None, None
        else:
            self.sinusoids, (self.src_positions, self.tgt_positions) = None, positions
        self.dropout = nn.Dropout(dropout)
        self.pad_id = pad_id

    def forward(self, src, tgt):
        """src (B, S), tgt (B, T) integer tensors -> logits (B, T, V). Padding stands at the end of a sentence.

        (PyTorch gives NaN where a query may look nowhere, as the first query of a sentence padded on the left.)
        """
        no_future = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1], device=tgt.device, dtype=torch.bool)
        y = self.transformer(
            self._embed(src, self.src_embedding, self.src_positions),
            self._embed(tgt, self.tgt_embedding, self.tgt_positions),
            tgt_mask=no_future,
            src_key_padding_mask=src == self.pad_id,
            tgt_key_padding_mask=tgt == self.pad_id,
            memory_key_padding_mask=src == self.pad_id,
        )  # (B, T, D)
        return self.output(y)  # (B, T, V)

    def _embed(self, ids, embedding, rows):
        """ids (B, L) -> (B, L, D)."""
        x = embedding(ids) * math.sqrt(embedding.embedding_dim)
        if rows is not None:
            return self.dropout(x + rows.weight[: ids.shape[1]])
        table = torch.from_numpy(self.sinusoids.table(ids.shape[1]))  # (L, D) in float64, rounded once
        return self.dropout(x + table.to(x.device, x.dtype))
