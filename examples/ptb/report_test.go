package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nlpodyssey/safetensors"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"pushpull/model"
	"pushpull/transport"
)

func TestReportHoldsNumbersThatJSONHasNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	r := &report{Epochs: []epochReport{{Epoch: 1, TrainPerplexity: number(math.Inf(1)), ValidPerplexity: new(number(1.5))}}}
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Epochs []map[string]any }
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got := got.Epochs[0]["train_perplexity"]; got != nil {
		t.Errorf("infinite perplexity = %v, want null", got)
	}
	if got, want := got.Epochs[0]["valid_perplexity"], 1.5; got != want {
		t.Errorf("perplexity = %v, want %v", got, want)
	}
}

func TestReportsOfOneJobDoNotCollide(t *testing.T) {
	o := mustParse(t, "--report=out/run.json")
	for task, want := range []string{"out/run.json", "out/run.worker1.json", "out/run.worker2.json"} {
		if got := (&trainer{o: o, task: task}).reportPath(); got != want {
			t.Errorf("report of worker %d goes to %s, want %s", task, got, want)
		}
	}
	if got := (&trainer{o: mustParse(t), task: 1}).reportPath(); got != "" {
		t.Errorf("without --report, one goes to %s", got)
	}
}

func TestSaveModelKeepsShapesValuesAndMetadata(t *testing.T) {
	vars := []*model.Variable{
		{Name: "w", Shape: []int{2, 3}, Value: []float32{1, -2, 0.5, float32(math.Inf(1)), 1e-40, 3}},
		{Name: "b", Shape: []int{2}, Value: []float32{7, 8}},
	}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := saveModel(path, vars, map[string]string{"model": "toy"}); err != nil {
		t.Fatal(err)
	}
	weights, metadata := loadModel(t, path)
	if diff := cmp.Diff(map[string][]float32{"w": vars[0].Value, "b": vars[1].Value}, weights); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"model": "toy"}, metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

// loadModel reads what saveModel wrote.
func loadModel(t testing.TB, path string) (weights map[string][]float32, metadata map[string]string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := safetensors.Deserialize(text)
	if err != nil {
		t.Fatal(err)
	}
	weights = map[string][]float32{}
	for _, named := range st.Tensors() {
		view := named.TensorView
		if view.DType() != safetensors.F32 {
			t.Fatalf("%s is %v, want F32", named.Name, view.DType())
		}
		n := uint64(1)
		for _, d := range view.Shape() {
			n *= d
		}
		w := make([]float32, n)
		transport.Float32.Decode(w, view.Data())
		weights[named.Name] = w
	}
	_, md, err := safetensors.ReadMetadata(text)
	if err != nil {
		t.Fatal(err)
	}
	return weights, md.Metadata()
}

func TestWriteFileLeavesTheOldFileOnError(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	err := writeFile(path, func(w io.Writer) error {
		if _, err := w.Write(bytes.Repeat([]byte("new"), 10_000)); err != nil {
			return err
		}
		return full
	})
	if !errors.Is(err, full) || !strings.Contains(err.Error(), path) {
		t.Errorf("error = %v, want %v with the path", err, full)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Errorf("file holds %q, want %q", got, "old")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("directory holds %v, want one file", left)
	}
}

func TestMetricsAreServedAndClean(t *testing.T) {
	reg := newRegistry("worker", 1)
	m := newWorkerMetrics(labeled(reg, "worker", 1))
	m.observe(model.Result{Loss: 12, Examples: 40}, 4, 1000, 0.5)
	addr := freeAddrs(t, 1)[0]
	stop, err := serveMetrics(addr, reg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := serveMetrics(addr, reg); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("second server at %s: error %v, want one that names the address", addr, err)
	}
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`worker_words_total{job="worker",task="1"} 40`,
		`worker_words_per_second{job="worker",task="1"} 1000`,
		`worker_loss{job="worker",task="1"} 3`,
		`worker_learning_rate{job="worker",task="1"} 0.5`,
		`go_goroutines{job="worker",task="1"}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "pushpull_") {
			t.Errorf("promlint: %s: %s", p.Metric, p.Text)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := http.Get("http://" + addr + "/metrics"); err == nil {
		t.Error("/metrics answers after stop")
	}
}
