package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	port, authority := os.Args[1], os.Args[2]
	pem, err := os.ReadFile(authority)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		transport := &http.Transport{
			DisableKeepAlives: true,
			Dial: func(network, _ string) (net.Conn, error) {
				return net.Dial(network, "127.0.0.1:"+port)
			},
			TLSClientConfig: &tls.Config{
				RootCAs:            roots,
				MinVersion:         version,
				MaxVersion:         version,
				ClientSessionCache: tls.NewLRUClientSessionCache(8),
			},
		}
		for range [2]int{} {
			answer, err := (&http.Client{Transport: transport}).Get("https://www.example.com/")
			if err != nil {
				panic(err)
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			fmt.Println(string(text))
		}
	}
}
