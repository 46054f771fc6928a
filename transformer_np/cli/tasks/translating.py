"""What the two tasks with an encoder and a decoder share: the options, and the Transformer made of them."""

TRAINING = {
    "d_model": 64,
    "heads": 4,
    "layers": 2,
    "d_ff": 256,
    "norm": "pre",
    "dropout": 0.0,
    "batch_size": 64,
    "lr": 3e-3,
}


def transformer(args, src_vocab_size, tgt_vocab_size, max_len=64):
    """Return the Transformer that the options ask for."""
    from ...models import Transformer

    return Transformer(
        src_vocab_size,
        tgt_vocab_size,
        d_model=args.d_model,
        n_heads=args.heads,
        n_encoder_layers=args.layers,
        n_decoder_layers=args.layers,
        d_ff=args.d_ff,
        dropout=args.dropout,
        max_len=max_len,
        norm=args.norm,
        seed=args.seed,
    )
