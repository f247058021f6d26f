package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"holdfast/internal/apikey"
)

func TestARunFromTriggerToHistory(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	s.run(0)
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("thanks")) }))
	t.Cleanup(receiver.Close)
	s.call(0, 201, "PUT", "/v1/jobs/j", `{"schedule": "@yearly", "target": {"webhook": {"url": "`+receiver.URL+`"}}}`)
	made, _ := s.call(1, 202, "POST", "/v1/jobs/j/trigger", `{"payload": {"n": 1}}`)
	path := "/v1/runs/" + made["id"].(string)
	var got object
	for got["status"] != "succeeded" {
		got, _ = s.call(1, 200, "GET", path, "")
	}
	attempt := got["attempts"].([]any)[0].(object)
	if got["job"] != "j" || got["trigger"] != "manual" || attempt["number"] != 1.0 || attempt["outcome"] != "succeeded" ||
		attempt["status_code"] != 200.0 || attempt["response"] != "thanks" || attempt["token"] != nil {
		t.Errorf("the run is %v", got)
	}
	s.refused(409, "run_state", "", "POST", path+"/cancel", "")
	s.refused(409, "run_state", "", "POST", path+"/retry", "")
	list, _ := s.call(0, 200, "GET", "/v1/runs?job=j&status=succeeded", "")
	if len(list["items"].([]any)) != 1 {
		t.Errorf("the list is %v", list)
	}
}

func TestRunsAreListedFromBothPlacesInOneOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	s.call(0, 201, "PUT", "/v1/jobs/j", pullJob)
	s.call(0, 201, "PUT", "/v1/jobs/other", pullJob)
	var ids []string
	for i := range 7 {
		made, _ := s.call(0, 202, "POST", "/v1/jobs/j/trigger", "")
		ids = append([]string{made["id"].(string)}, ids...)
		if i%2 == 0 {
			s.call(0, 200, "POST", "/v1/runs/"+made["id"].(string)+"/cancel", "")
		}
		s.call(0, 202, "POST", "/v1/jobs/other/trigger", "")
	}
	var got []string
	for cursor := ""; ; {
		page, _ := s.call(1, 200, "GET", "/v1/runs?job=j&limit=2"+cursor, "")
		for _, item := range page["items"].([]any) {
			got = append(got, item.(object)["id"].(string))
		}
		if page["next_cursor"] == nil {
			break
		}
		cursor = "&cursor=" + page["next_cursor"].(string)
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("listed %v, want %v", got, ids)
	}
	all, _ := s.call(0, 200, "GET", "/v1/runs?limit=500", "")
	from := all["items"].([]any)[6].(object)["scheduled_for"].(string)
	part, _ := s.call(0, 200, "GET", "/v1/runs?from="+from, "")
	rest, _ := s.call(0, 200, "GET", "/v1/runs?to="+from, "")
	if len(all["items"].([]any)) != 14 || len(part["items"].([]any)) != 7 || len(rest["items"].([]any)) != 7 {
		t.Errorf("%d runs in all, %d from, %d to the seventh", len(all["items"].([]any)), len(part["items"].([]any)), len(rest["items"].([]any)))
	}
	if none, _ := s.call(0, 200, "GET", "/v1/runs?job=nobody", ""); len(none["items"].([]any)) != 0 {
		t.Error("a job that isn't has runs")
	}
	for _, path := range []string{"/v1/runs/xyz", "/v1/runs/00000000-0000-0000-0000-000000000000"} {
		s.refused(404, "run_not_found", "", "GET", path, "")
	}
	s.refused(422, "validation_failed", "query.status", "GET", "/v1/runs?status=odd", "")
}

func TestAWorkersWay(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	s.call(0, 201, "PUT", "/v1/jobs/j", `{"schedule": "@yearly", "target": {"pull": {"queue": "q"}}, "retry": {"backoff": "0s"}}`)
	made, _ := s.call(0, 202, "POST", "/v1/jobs/j/trigger", `{"payload": [1, 2]}`)
	lease := func(want int) object {
		t.Helper()
		got, _ := s.call(1, 200, "POST", "/v1/leases", `{"queue": "q", "max": 5, "lease": "1m", "wait": "1s"}`)
		if len(got["runs"].([]any)) != want {
			t.Fatalf("leased %v, want %d runs", got, want)
		}
		if want == 0 {
			return nil
		}
		return got["runs"].([]any)[0].(object)
	}
	r := lease(1)
	if r["id"] != made["id"] || r["job"] != "j" || r["attempt"] != 1.0 || fmt.Sprint(r["payload"]) != "[1 2]" || r["leased_until"] == nil {
		t.Errorf("leased %v", r)
	}
	path, token := "/v1/runs/"+r["id"].(string), `"lease_token": "`+r["lease_token"].(string)+`"`
	back, _ := s.call(0, 200, "POST", path+"/release", `{`+token+`}`)
	if back["status"] != "pending" {
		t.Errorf("release says %v", back)
	}
	s.refused(409, "lease_lost", "", "POST", path+"/release", `{`+token+`}`)
	s.refused(404, "run_not_found", "", "POST", "/v1/runs/00000000-0000-0000-0000-000000000001/release", `{`+token+`}`)
	r = lease(1)
	token = `"lease_token": "` + r["lease_token"].(string) + `"`
	beat, _ := s.call(0, 200, "POST", path+"/heartbeat", `{`+token+`, "lease": "2m"}`)
	if beat["status"] != "running" || beat["leased_until"].(string) <= r["leased_until"].(string) {
		t.Errorf("the heartbeat says %v", beat)
	}
	first, _ := s.call(0, 200, "POST", path+"/fail", `{`+token+`, "error": "no luck"}`)
	if first["status"] != "pending" || first["next_attempt_at"] == nil {
		t.Errorf("fail says %v", first)
	}
	again, _ := s.call(1, 200, "POST", path+"/fail", `{`+token+`, "error": "no luck"}`)
	if fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("fail again says %v, first %v", again, first)
	}
	s.refused(409, "lease_lost", "", "POST", path+"/complete", `{`+token+`}`)
	s.refused(409, "lease_lost", "", "POST", path+"/heartbeat", `{`+token+`}`)
	s.refused(409, "lease_lost", "", "POST", path+"/complete", `{"lease_token": "nonsense"}`)
	s.refused(404, "run_not_found", "", "POST", "/v1/runs/00000000-0000-0000-0000-000000000001/complete", `{`+token+`}`)

	r = lease(1)
	if r["attempt"] != 3.0 {
		t.Errorf("leased again as attempt %v", r["attempt"])
	}
	token = `"lease_token": "` + r["lease_token"].(string) + `"`
	s.call(0, 200, "POST", path+"/complete", `{`+token+`, "result": {"rows": 3}}`)
	s.call(0, 200, "POST", path+"/complete", `{`+token+`, "result": {"rows": 3}}`)
	got, _ := s.call(0, 200, "GET", path, "")
	if got["status"] != "succeeded" || len(got["attempts"].([]any)) != 3 || got["result"].(object)["rows"] != 3.0 {
		t.Errorf("the run is %v", got)
	}
	lease(0)
	for body, location := range map[string]string{
		`{"max": 0}`: "body.max", `{"max": 501}`: "body.max", `{}`: "body.max", `{"max": 1, "lease": "0s"}`: "body.lease",
		`{"max": 1, "wait": "31s"}`: "body.wait", `{"max": 1, "queue": "a/b"}`: "body.queue",
	} {
		want := location
		if body == `{}` {
			want = ""
		}
		s.refused(422, "validation_failed", want, "POST", "/v1/leases", body)
	}
}

func TestCancelIsFinalAndRetryTakesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	s.call(0, 201, "PUT", "/v1/jobs/j", pullJob)
	made, _ := s.call(0, 202, "POST", "/v1/jobs/j/trigger", "")
	path := "/v1/runs/" + made["id"].(string)
	leased, _ := s.call(0, 200, "POST", "/v1/leases", `{"queue": "q", "max": 1}`)
	token := leased["runs"].([]any)[0].(object)["lease_token"].(string)
	got, _ := s.call(1, 200, "POST", path+"/cancel", "")
	if got["status"] != "cancelled" || got["reason"] != "requested" {
		t.Errorf("cancelled: %v", got)
	}
	s.call(0, 200, "POST", path+"/cancel", "")
	s.refused(409, "lease_lost", "", "POST", path+"/complete", `{"lease_token": "`+token+`"}`)
	got, _ = s.call(0, 202, "POST", path+"/retry", "")
	if got["status"] != "pending" || got["id"] != made["id"] {
		t.Errorf("retried: %v", got)
	}
	s.refused(409, "run_state", "", "POST", path+"/retry", "")
	leased, _ = s.call(0, 200, "POST", "/v1/leases", `{"queue": "q", "max": 1}`)
	if attempt := leased["runs"].([]any)[0].(object)["attempt"]; attempt != 2.0 {
		t.Errorf("retried as attempt %v", attempt)
	}
}

func TestOneKeyActsOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	s.call(0, 201, "PUT", "/v1/jobs/j", pullJob)
	var (
		mu  sync.Mutex
		ids = map[any]int{}
		wg  sync.WaitGroup
	)
	for i := range 8 {
		wg.Go(func() {
			got, _ := s.call(i%2, 202, "POST", "/v1/jobs/j/trigger", `{"payload": 1}`, "Idempotency-Key", "k")
			mu.Lock()
			ids[got["id"]]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Errorf("one key made the runs %v", ids)
	}
	made1, _ := s.call(0, 202, "POST", "/v1/jobs/j/trigger", "", "Idempotency-Key", "bare")
	made2, _ := s.call(1, 202, "POST", "/v1/jobs/j/trigger", "", "Idempotency-Key", "bare")
	if fmt.Sprint(made1) != fmt.Sprint(made2) {
		t.Errorf("the first answer is %v, its replay %v", made1, made2)
	}
	s.refused(422, "idempotency_key_reused", "", "POST", "/v1/jobs/j/trigger", `{"payload": 2}`, "Idempotency-Key", "k")
	first, _ := s.call(0, 200, "POST", "/v1/leases", `{"queue": "q", "max": 1, "wait": "1s"}`, "Idempotency-Key", "l")
	second, header := s.call(1, 200, "POST", "/v1/leases", `{"queue": "q", "max": 1, "wait": "1s"}`, "Idempotency-Key", "l")
	if fmt.Sprint(first) != fmt.Sprint(second) || header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("leased %v, then %v", first, second)
	}
	made, header := s.call(0, 201, "POST", "/v1/jobs", `{"name": "n", "schedule": "@daily", "target": {"pull": {}}}`, "Idempotency-Key", "n")
	again, replayed := s.call(1, 201, "POST", "/v1/jobs", `{"name": "n", "schedule": "@daily", "target": {"pull": {}}}`, "Idempotency-Key", "n")
	if fmt.Sprint(made) != fmt.Sprint(again) || header.Get("Idempotency-Replayed") != "" || replayed.Get("Idempotency-Replayed") != "true" {
		t.Errorf("made %v, then %v", made, again)
	}
	secret, _ := s.call(0, 200, "POST", "/v1/signing-secret/rotate", "", "Idempotency-Key", "s")
	same, _ := s.call(1, 200, "POST", "/v1/signing-secret/rotate", "", "Idempotency-Key", "s")
	current, _ := s.call(1, 200, "GET", "/v1/signing-secret", "")
	if secret["secret"] != same["secret"] || secret["secret"] != current["secret"] || current["previous"] == nil {
		t.Error("a rotation that was repeated rotated twice")
	}
}

func TestTenantsSeeOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t, true)
	keys := apikey.NewStore(s.db.Pool, "chronos")
	secret := func(tenant string, scope apikey.Scope) string {
		_, secret, err := keys.Create(t.Context(), tenant, "", []apikey.Scope{scope})
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	ours, theirs := secret("ours", apikey.Admin), secret("theirs", apikey.Write)
	s.key = ours
	s.call(0, 201, "PUT", "/v1/jobs/j", pullJob)
	made, _ := s.call(0, 202, "POST", "/v1/jobs/j/trigger", "")
	path := "/v1/runs/" + made["id"].(string)
	s.key = theirs
	for _, p := range []string{"/v1/jobs/j", "/v1/jobs/j/upcoming", path} {
		answer, _ := s.call(1, 404, "GET", p, "")
		if answer["code"] != "job_not_found" && answer["code"] != "run_not_found" {
			t.Errorf("%s: %v", p, answer)
		}
	}
	for _, p := range []string{"/v1/jobs/j/pause", "/v1/jobs/j/trigger", path + "/cancel", path + "/retry"} {
		s.call(1, 404, "POST", p, "")
	}
	s.call(1, 404, "DELETE", "/v1/jobs/j", "")
	for _, p := range []string{"/v1/jobs", "/v1/runs"} {
		if list, _ := s.call(1, 200, "GET", p, ""); len(list["items"].([]any)) != 0 {
			t.Errorf("%s shows another tenant's", p)
		}
	}
	if got, _ := s.call(1, 200, "POST", "/v1/leases", `{"queue": "q", "max": 5}`); len(got["runs"].([]any)) != 0 {
		t.Error("another tenant's run was leased")
	}
	s.call(1, 201, "PUT", "/v1/jobs/j", pullJob)
	s.refused(403, "insufficient_scope", "", "GET", "/v1/signing-secret", "")
	s.key = secret("ours", apikey.Read)
	s.refused(403, "insufficient_scope", "", "PUT", "/v1/jobs/j", pullJob)
	s.key = ""
	s.refused(401, "missing_api_key", "", "GET", "/v1/jobs", "")
}

func TestServiceRoutes(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	s.run(0)
	var replicas []any
	for len(replicas) == 0 || replicas[0].(object)["leader"] != true {
		got, _ := s.call(1, 200, "GET", "/v1/replicas", "")
		replicas = got["items"].([]any)
	}
	if r := replicas[0].(object); len(replicas) != 1 || r["id"] != s.services[0].ID().String() || r["epoch"] != 1.0 {
		t.Errorf("replicas are %v", replicas)
	}
	for _, path := range []string{"/livez", "/readyz", "/openapi.json"} {
		s.call(0, 200, "GET", path, "")
	}
	s.refused(404, "route_not_found", "", "GET", "/v1/nothing", "")
	s.refused(405, "method_not_allowed", "", "DELETE", "/v1/jobs", "")
}
