"""Sentence encoders: pull a student's vectors in other languages to those of an English teacher."""
