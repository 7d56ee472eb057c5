package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"pushpull/model"
)

// labeled returns a registerer that labels what it registers with job and task.
func labeled(reg prometheus.Registerer, job string, index int) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"job": job, "task": strconv.Itoa(index)}, reg)
}

// newRegistry returns a registry that has the metrics of Go and of the process.
func newRegistry(job string, index int) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	labeled(reg, job, index).MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// workerMetrics are what a worker tells beside the metrics of its session.
type workerMetrics struct {
	words prometheus.Counter
	speed prometheus.Gauge
	loss  prometheus.Gauge
	rate  prometheus.Gauge
}

func newWorkerMetrics(reg prometheus.Registerer) *workerMetrics {
	f := promauto.With(reg)
	return &workerMetrics{
		words: f.NewCounter(prometheus.CounterOpts{Name: "worker_words_total", Help: "Words the worker has trained on."}),
		speed: f.NewGauge(prometheus.GaugeOpts{Name: "worker_words_per_second", Help: "Words per second since the epoch began."}),
		loss:  f.NewGauge(prometheus.GaugeOpts{Name: "worker_loss", Help: "Cross entropy of a word in the last batch, in nats."}),
		rate:  f.NewGauge(prometheus.GaugeOpts{Name: "worker_learning_rate", Help: "Learning rate of the servers at the last pull."}),
	}
}

// observe takes note of one step.
func (m *workerMetrics) observe(r model.Result, unroll int, wordsPerSecond, rate float64) {
	m.words.Add(float64(r.Examples))
	m.speed.Set(wordsPerSecond)
	m.loss.Set(r.Loss / float64(unroll))
	m.rate.Set(rate)
}

// serveMetrics answers /metrics at addr, until the function it returns is
// called; that returns once nobody is served any more.
func serveMetrics(addr string, reg prometheus.Gatherer) (stop func() error, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics: --metrics_addr=%s: %w", addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := s.Shutdown(ctx) // lets a scrape under way end
		if err != nil {
			s.Close()
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("metrics: %w", err)
		}
		return nil
	}, nil
}
