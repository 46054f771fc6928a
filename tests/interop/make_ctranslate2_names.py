"""Write ctranslate2_names.json: what CTranslate2 itself makes of ten names, greedily and by beam search.

python tests/interop/make_ctranslate2_names.py ../shared/data/aren-transliteration        (needs `ctranslate2`)
"""

import json
import sys
from pathlib import Path

import ctranslate2

NAMES = ["آتزمون", "آتشيسون", "أحمد", "برلين", "شكسبير", "نيوتن", "كوبنهاغن", "فاطمة", "ماندلا", "إسطنبول"]


def translate(translator, beam_size):
    """Return, for each name, its hypotheses and their scores: the mean log-probability of a token, </s> included."""
    results = translator.translate_batch(
        [list(name) for name in NAMES],
        beam_size=beam_size,
        num_hypotheses=beam_size,
        return_scores=True,
        length_penalty=1.0,
    )
    return [
        {"hypotheses": ["".join(tokens) for tokens in result.hypotheses], "scores": result.scores} for result in results
    ]


def main(folder):
    """Run the model of that folder in float32 on the CPU, and write the file beside this script."""
    translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32")
    content = {
        "made_by": f"ctranslate2 {ctranslate2.__version__}, compute_type float32, length_penalty 1",
        "names": NAMES,
        "greedy": translate(translator, 1),
        "beam 4": translate(translator, 4),
    }
    text = json.dumps(content, ensure_ascii=False, indent=1)
    Path(__file__).with_name("ctranslate2_names.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
