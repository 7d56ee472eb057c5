package ps

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pushpull/transport"
)

// metrics are a server's. docs/metrics.md says what they tell.
type metrics struct {
	gradients    *prometheus.CounterVec // by worker, result
	staleness    prometheus.Histogram
	step         prometheus.Gauge
	examples     prometheus.Counter
	learningRate prometheus.Gauge
	shardBytes   prometheus.Gauge
	pullWait     prometheus.Histogram
	checkpoints  *prometheus.CounterVec // by result
	replicas     *prometheus.GaugeVec   // by state
}

// newMetrics registers the metrics of a server, unless reg is nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		gradients: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ps_gradients_total",
			Help: "Gradients pushed since the server started, by worker task and verdict.",
		}, []string{"worker", "result"}),
		staleness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ps_staleness_steps",
			Help:    "Steps by which a pushed gradient was behind the shard, dropped ones included.",
			Buckets: []float64{0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256},
		}),
		step: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ps_step",
			Help: "Updates applied to the shard; -1 before it has weights.",
		}),
		examples: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ps_examples_total",
			Help: "Examples in the gradients pushed since the server started, whatever the verdict.",
		}),
		learningRate: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ps_learning_rate",
			Help: "Learning rate of the next update.",
		}),
		shardBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ps_shard_bytes",
			Help: "Bytes of the weights on the shard, without the optimizer's slots.",
		}),
		pullWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ps_pull_wait_seconds",
			Help:    "Time that a pull waited for its step.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10), // 0.1 ms to 26 s
		}),
		checkpoints: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ps_checkpoints_total",
			Help: "Checkpoints written since the server started, by result: saved or failed.",
		}, []string{"result"}),
		replicas: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ps_replicas",
			Help: "Expected replicas by state: missing (not joined), joined, finished or left.",
		}, []string{"state"}),
	}
	if reg == nil {
		return m, nil
	}
	var errs error
	for _, c := range []prometheus.Collector{
		m.gradients, m.staleness, m.step, m.examples, m.learningRate, m.shardBytes, m.pullWait, m.checkpoints, m.replicas,
	} {
		errs = errors.Join(errs, reg.Register(c))
	}
	if errs != nil {
		return nil, fmt.Errorf("ps: Metrics: want a registerer for each server of a process: %w", errs)
	}
	return m, nil
}

// pushed counts a push that got a verdict. repeated says that its sequence
// number had been used.
func (m *metrics) pushed(p *transport.Push, v transport.Verdict, staleness int64, repeated bool) {
	if repeated {
		v = transport.Duplicate
	} else {
		m.staleness.Observe(float64(staleness))
		m.examples.Add(float64(p.Examples))
	}
	m.gradients.WithLabelValues(strconv.Itoa(p.Replica.Task), v.String()).Inc()
}

// waited counts a pull that has waited since start.
func (m *metrics) waited(start time.Time) { m.pullWait.Observe(time.Since(start).Seconds()) }

func (m *metrics) checkpoint(err error) {
	result := "saved"
	if err != nil {
		result = "failed"
	}
	m.checkpoints.WithLabelValues(result).Inc()
}

// observe sets the gauges from the shard, which does not change meanwhile.
func (m *metrics) observe(s *Shard) {
	m.step.Set(float64(s.step))
	m.learningRate.Set(s.rate())
	var elements, missing, joined, finished, left int
	for _, h := range s.parts {
		elements += len(h.w)
	}
	for task := range s.replicas {
		switch r := &s.replicas[task]; {
		case !r.joined:
			missing++
		case r.left:
			left++
		case r.finished:
			finished++
		default:
			joined++
		}
	}
	m.shardBytes.Set(float64(4 * elements))
	m.replicas.WithLabelValues("missing").Set(float64(missing))
	m.replicas.WithLabelValues("joined").Set(float64(joined))
	m.replicas.WithLabelValues("finished").Set(float64(finished))
	m.replicas.WithLabelValues("left").Set(float64(left))
}
