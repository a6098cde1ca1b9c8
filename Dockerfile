# A static binary and nothing else: docker build -t postern .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /postern ./cmd/postern

FROM scratch
# workers may speak TLS
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /postern /postern
# nobody: a number, since there is no /etc/passwd
USER 65534:65534
ENV POSTERN_LISTEN=:8080 POSTERN_METRICS_LISTEN=:9090
EXPOSE 8080 9090
ENTRYPOINT ["/postern"]
CMD ["serve"]
