package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"holdfast/webhook"
)

// A receiver checks the signature before it reads anything else, and drops a
// webhook-id that it has seen.
func ExampleVerify() {
	secret := webhook.NewSecret()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			return
		}
		if err := webhook.Verify(r.Header, body, time.Now(), webhook.DefaultTolerance, secret); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		fmt.Printf("%s brought %s\n", r.Header.Get(webhook.HeaderID), body)
	}))
	defer receiver.Close()

	loopback, err := webhook.ParsePrefixes("127.0.0.0/8,::1/128")
	if err != nil {
		fmt.Println(err)
		return
	}
	client := webhook.NewClient(webhook.Options{Guard: webhook.NewGuard(loopback...)})
	defer client.CloseIdle()
	result := client.Send(context.Background(), webhook.Request{
		URL: receiver.URL, Method: http.MethodPost, Body: []byte(`{"sku":"mug"}`),
		ID: "event-7", Secrets: []webhook.Secret{secret},
	})
	fmt.Println(result.Outcome, result.StatusCode)
	// Output:
	// event-7 brought {"sku":"mug"}
	// succeeded 200
}

func ExampleGuard_CheckURL() {
	guard := webhook.NewGuard()
	for _, url := range []string{"https://example.com/hook", "http://169.254.169.254/", "http://0x7f.1/", "ftp://example.com"} {
		fmt.Println(guard.CheckURL(url))
	}
	// Output:
	// <nil>
	// url has a link-local address as its host
	// url has an address as its host that isn't four decimal numbers without leading zeros
	// url must begin with http:// or https://
}

func ExampleBackoff_Delay() {
	backoff := webhook.Backoff{Base: 10 * time.Second, Max: time.Minute}
	fmt.Println(backoff.Delay(1, 0, 0), backoff.Delay(3, 0, 0), backoff.Delay(9, 0, 0))
	fmt.Println(backoff.Delay(1, 5*time.Minute, 0.5))
	// Output:
	// 10s 40s 1m0s
	// 5m30s
}
