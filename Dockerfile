# The worker's image: one virtual environment from the lock, nothing of the tools that made it.
FROM python:3.13.16-slim-trixie AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
RUN python -m venv /opt/nodewarden
COPY requirements.lock requirements-build.lock ./
RUN /opt/nodewarden/bin/pip install --require-hashes --only-binary :all: --requirement requirements.lock \
    && pip install --require-hashes --only-binary :all: --requirement requirements-build.lock
COPY . .
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/nodewarden/bin/pip install --no-deps --no-index /wheels/*.whl \
    && /opt/nodewarden/bin/pip check

FROM python:3.13.16-slim-trixie
LABEL org.opencontainers.image.title="nodewarden" \
      org.opencontainers.image.description="Keeps the nodes of Kubernetes clusters working" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/nodewarden --create-home nodewarden \
    && chmod 1777 /var/lib/nodewarden
COPY --from=build /opt/nodewarden /opt/nodewarden
ENV PATH=/opt/nodewarden/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/nodewarden
# SIGTERM lets running activities end before the process does: give a stop at least 45 seconds.
STOPSIGNAL SIGTERM
ENTRYPOINT ["nodewarden"]
CMD ["worker"]
