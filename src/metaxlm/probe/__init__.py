"""What an encoder can do as it is: sentence vectors, retrieval, bitext mining, word alignment."""
