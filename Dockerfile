# The server in a small image: the binary on a base without a shell, run by a user that is not root.
#
#   docker build --tag annals .
#   docker run --rm --volume annals:/data annals credential create --store embedded:/data --name admin --role admin
#   docker run --publish 127.0.0.1:4000:4000 --volume annals:/data --env ANNALS__SERVER__NAMES=localhost annals
FROM rust:1.90-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile image --locked --package annals-cli --features kafka-tls,redis,s3
RUN mkdir /data

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/image/annals /usr/local/bin/annals
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
WORKDIR /data
VOLUME /data
EXPOSE 4000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["annals", "health", "--server", "http://127.0.0.1:4000"]
ENTRYPOINT ["annals"]
# Other machines reach a published port, so callers need keys, and TLS is the proxy's in front; or configure [tls].
CMD ["serve", "--store", "embedded:/data", "--listen", "0.0.0.0:4000", "--insecure-http"]
