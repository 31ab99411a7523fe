# weir with the TigerBeetle client, which needs cgo. The program is linked statically, so that it
# runs on an image that has another C library, and brings its time zones along, as that has none.
FROM golang:1.26-trixie AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=1 go build -trimpath -tags netgo,osusergo,timetzdata \
    -ldflags '-s -w -linkmode external -extldflags -static' -o /weir ./cmd/weir

FROM alpine:3.22
RUN adduser -D -H -u 65532 weir && install -d -o weir -g weir -m 700 /data
COPY --from=build /weir /usr/local/bin/weir
COPY weir.yaml /etc/weir/weir.yaml
USER weir
ENV WEIR_CONFIG=/etc/weir/weir.yaml WEIR_DATA=/data WEIR_LISTEN=0.0.0.0:8080
VOLUME /data
EXPOSE 8080
# /readyz wants no token. It is 200 while the ledger is down, once that was reached.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s \
    CMD wget -q -O /dev/null http://127.0.0.1:8080/readyz
ENTRYPOINT ["weir"]
CMD ["serve"]
