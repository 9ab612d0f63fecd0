# The server in a small image: one static binary and the certificates of public authorities, run by a user that is not root.
#
#   docker build --tag annals .
#   docker run --rm --volume annals:/data annals credential create --store embedded:/data --name admin --role admin
#   docker run --publish 127.0.0.1:4000:4000 --volume annals:/data --env ANNALS__SERVER__NAMES=localhost annals
FROM rust:1.90-bookworm AS build
# The C compiler for what is linked into a static binary.
RUN apt-get update && apt-get install --yes --no-install-recommends musl-tools && rm -rf /var/lib/apt/lists/*
RUN rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
RUN cargo build --profile image --target "$(uname -m)-unknown-linux-musl" --locked --package annals-cli --features kafka-tls,redis,s3
RUN strip -o /usr/local/bin/annals "target/$(uname -m)-unknown-linux-musl/image/annals" && mkdir /data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /usr/local/bin/annals /usr/local/bin/annals
COPY --from=build --chown=65532:65532 /data /data
ENV PATH=/usr/local/bin
USER 65532:65532
WORKDIR /data
VOLUME /data
EXPOSE 4000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["annals", "health", "--server", "http://127.0.0.1:4000"]
ENTRYPOINT ["annals"]
# Other machines reach a published port, so callers need keys, and TLS is the proxy's in front; or configure [tls].
CMD ["serve", "--store", "embedded:/data", "--listen", "0.0.0.0:4000", "--insecure-http"]
