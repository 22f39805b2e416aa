# The worker's image: one virtual environment from the locks, nothing of the tools that made it. tests/test_image.py runs these steps.
#
# Pinned by version. Its digest is not written here, since nobody has verified one for this repository without a registry: give yours,
# `docker build --build-arg BASE=python:3.13.16-slim-trixie@sha256:…`.
ARG BASE=python:3.13.16-slim-trixie

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
RUN python -m venv --without-pip /opt/nodewarden
COPY requirements.lock requirements-build.lock ./
RUN pip --python /opt/nodewarden/bin/python install --require-hashes --only-binary :all: --requirement requirements.lock \
    && pip install --require-hashes --only-binary :all: --requirement requirements-build.lock
COPY . .
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && pip --python /opt/nodewarden/bin/python install --no-deps --no-index /wheels/*.whl \
    && pip --python /opt/nodewarden/bin/python check

FROM ${BASE}
LABEL org.opencontainers.image.title="nodewarden" \
      org.opencontainers.image.description="Keeps the nodes of Kubernetes clusters working" \
      org.opencontainers.image.licenses="Apache-2.0"
# Nothing is installed in a running worker: pip goes, and what would bring it back.
RUN pip uninstall --yes --root-user-action ignore pip \
    && rm -rf /usr/local/lib/python3.13/ensurepip \
    && useradd --system --uid 10001 --user-group --home-dir /var/lib/nodewarden --create-home nodewarden \
    && chmod 1777 /var/lib/nodewarden
COPY --from=build /opt/nodewarden /opt/nodewarden
ENV PATH=/opt/nodewarden/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/nodewarden
# SIGTERM lets running activities end before the process does: give a stop at least 45 seconds.
STOPSIGNAL SIGTERM
ENTRYPOINT ["nodewarden"]
CMD ["worker"]
