"""The tasks of the paper that an encoder is finetuned for, and the data of all of them."""
