ARG BASE=python:3.13-slim-bookworm
FROM ${BASE}

WORKDIR /app
COPY pyproject.toml constraints.txt ./
COPY service service
COPY migrations migrations
COPY catalog catalog
COPY openapi openapi
# Editable: migrations, catalog and openapi are found beside the package.
RUN pip install --no-cache-dir --constraint constraints.txt --editable .

# Numeric, so that an orchestrator can see that it is not root.
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health/ready', timeout=5)"]
ENTRYPOINT ["gpuplan"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
