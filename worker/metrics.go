package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	seconds *prometheus.HistogramVec // by phase: pull, compute, push
}

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{
		seconds: promauto.With(reg).NewHistogramVec(prometheus.HistogramOpts{
			Name:    "worker_step_seconds",
			Help:    "Time of one training step, by phase. The pull includes waiting for other replicas.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"phase"}),
	}
}

// observe records the time since start and returns it.
func (m *metrics) observe(phase string, start time.Time) time.Duration {
	d := time.Since(start)
	m.seconds.WithLabelValues(phase).Observe(d.Seconds())
	return d
}
