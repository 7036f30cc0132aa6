package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
)

func main() {
	port, authority := os.Args[1], os.Args[2]
	pem, err := os.ReadFile(authority)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		Dial: func(network, _ string) (net.Conn, error) {
			return net.Dial(network, "127.0.0.1:"+port)
		},
		TLSClientConfig: &tls.Config{RootCAs: roots},
	}}
	const base = "https://www.example.com"
	var group sync.WaitGroup
	var lock sync.Mutex
	alike := 0
	for range [20]int{} {
		group.Add(1)
		go func() {
			defer group.Done()
			if _, text, _ := read(client.Get(base + "/page")); strings.Contains(text, "fetched") {
				lock.Lock()
				alike++
				lock.Unlock()
			}
		}()
	}
	group.Wait()
	fmt.Println("HTTP/2.0", alike, "/page")
	protocol, text, _ := read(client.Get(base + "/files/large"))
	fmt.Println(protocol, len(text))
	body := strings.NewReader(strings.Repeat("x", 200000))
	protocol, text, trailer := read(client.Post(base+"/body", "text/plain", body))
	fmt.Println(protocol, len(strings.TrimSpace(text)), trailer)
}

func read(answer *http.Response, err error) (string, string, string) {
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		panic(err)
	}
	return answer.Proto, string(text), answer.Trailer.Get("X-Trailer")
}
