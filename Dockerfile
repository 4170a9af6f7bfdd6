# A machine with an NVIDIA GPU: docker build -t metaxlm . && docker run --gpus all -v "$PWD:/work" metaxlm demo
FROM python:3.11-slim
# Triton compiles the fused kernels with a C compiler.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /metaxlm
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN pip install --no-cache-dir torch==2.13.0
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt '.[wikipedia]'
WORKDIR /work
ENTRYPOINT ["metaxlm"]
