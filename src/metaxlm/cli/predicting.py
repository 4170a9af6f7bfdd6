"""`metaxlm predict`: a finetuned model answers on files of the user."""

from __future__ import annotations

from typing import Annotated

import typer

from metaxlm.cli.options import Device, Quiet, keep_output_clean
from metaxlm.progress import say, set_quiet

FORMATS = """
What is read and written depends on what the model was finetuned for.

\b
Classification
  reads  tsv    a text a line, or two with a tab between them (.tsv, .txt, stdin)
         jsonl  {"text": ...} or {"first": ..., "second": ...} a line
  writes a line for each line: label TAB probability
Tagging
  reads  text   a sentence a line, spaces between words (.txt, stdin); cut
                Chinese, Japanese and Thai into words first
         conll  a word a line (first column), a blank line between sentences
                (.conll, .bio, .iob, .tsv)
         conllu CoNLL-U, its second column
  writes word TAB tag a line, a blank line after each sentence
Questions
  reads  jsonl  {"question": ..., "context": ..., "id": ...} a line; without id
                the number of the line serves (.jsonl, stdin)
         squad  SQuAD's JSON (.json)
  writes a JSON object {id: answer}
\b
Examples:
  metaxlm predict --model finetuned/xnli --input pairs.tsv --output labels.tsv
  echo "we saw Anna in Paris" | metaxlm predict --model finetuned/panx --input -
"""


def predict(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="A finetuned model: a folder of `evaluate --keep-models`, or any Hugging Face "
            "folder or hub id with a head for classification, tagging or questions.",
        ),
    ],
    source: Annotated[str, typer.Option("--input", help="File to read; - is stdin.")],
    target: Annotated[str, typer.Option("--output", help="File to write; - is stdout.")] = "-",
    layout: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="tsv, jsonl, text, conll, conllu or squad; the file's name tells it.",
        ),
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Let a finetuned model answer on your files, of any size and in order."""
    set_quiet(quiet)
    with keep_output_clean(target):
        from metaxlm.files import check_file_output
        from metaxlm.finetune.prediction import predict_file
        from metaxlm.model.finetuned import load_finetuned
        from metaxlm.pretrain.distributed import choose_device

        check_file_output(target, source)
        chosen = choose_device(device)
        count = predict_file(load_finetuned(model), source, target, chosen, layout)
        say(f"{count:,} predicted" + ("" if target == "-" else f": {target}"))
