package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"pushpull/examples/ptb/corpus"
	"pushpull/model/lstm"
)

func TestPresetsAreThoseOfTheTutorial(t *testing.T) {
	// Parameters with a vocabulary of 10,000, from the paper's model sizes.
	for name, want := range map[string]int{"test": 50_040, "small": 4_651_600, "medium": 19_775_200, "large": 66_022_000} {
		o := mustParse(t, "--model="+name)
		p := o.preset
		got := 2*10_000*p.Hidden + 10_000
		got += p.Layers * (2*p.Hidden*4*p.Hidden + 4*p.Hidden)
		if got != want {
			t.Errorf("%s has %d parameters, want %d", name, got, want)
		}
	}
}

func TestScheduleIsTheTutorials(t *testing.T) {
	text, err := os.ReadFile("corpus/testdata/reader.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Rates map[string][]float64 `json:"lr_schedule_by_epoch"`
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Rates) != 3 {
		t.Fatalf("rates of %d presets, want 3", len(want.Rates))
	}
	for name, rates := range want.Rates {
		o := mustParse(t, "--model="+name, "--data_path=x")
		if got, want := o.preset.Epochs, len(rates); got != want {
			t.Errorf("%s: %d epochs, want %d", name, got, want)
		}
		for epoch, want := range rates {
			if got := o.schedule().At(epoch); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: rate of epoch %d = %v, want %v", name, epoch, got, want)
			}
		}
	}
}

func TestSettingsTellApartWhatProcessesMustAgreeOn(t *testing.T) {
	job := []string{"--job_name=worker", "--task_index=0", "--ps_hosts=a:1,b:1"}
	base := mustParse(t, job...).settings()
	for _, flags := range []string{
		"--model=medium", "--batch_size=7", "--clip_norm=slices", "--ps_hosts=c:1", "--worker_hosts=a:2", "--sync_replicas",
		"--sync_replicas --replicas_to_aggregate=1", "--max_staleness=4", "--optimizer=momentum", "--learning_rate=0.3",
		"--use_fp16", "--partition_bytes=1024", "--placement=round_robin",
	} {
		got := mustParse(t, append(job, strings.Fields(flags)...)...).settings()
		if fmt.Sprint(got) == fmt.Sprint(base) {
			t.Errorf("%s: settings %v are those without it", flags, got)
		}
	}
	for _, flags := range []string{"--task_index=1", "--threads=5", "--engine=portable", "--report=x", "--data_path=elsewhere", "--startup_timeout=1s"} {
		got := mustParse(t, append(job, flags)...).settings()
		if fmt.Sprint(got) != fmt.Sprint(base) {
			t.Errorf("%s: settings %v, want %v: processes may differ in it", flags, got, base)
		}
	}
}

func TestPlanCountsEveryWorkersEpoch(t *testing.T) {
	c := &corpus.Corpus{Name: "some text", Words: []string{"a", "b"}, Train: make([]int32, 1003)}
	for workers := 1; workers <= 16; workers++ {
		o := mustParse(t, "--model=test", "--epochs=4", "--steps=9", fmt.Sprintf("--workers=%d", workers))
		plan, err := o.plan(c)
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		for task := range workers {
			share, err := lstm.Share(c.Train, task, workers)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := o.lstm(task, 2)
			if err != nil {
				t.Fatal(err)
			}
			m, err := lstm.New(cfg, share)
			if err != nil {
				t.Fatal(err)
			}
			want += m.EpochSize() * 20 * 2
		}
		if got := plan.EpochExamples; got != int64(want) {
			t.Errorf("%d workers: EpochExamples = %d, want %d", workers, got, want)
		}
		if got := plan.Examples; got != int64(4*want) {
			t.Errorf("%d workers: Examples = %d, want %d", workers, got, 4*want)
		}
		if got := plan.Steps; got != 9 {
			t.Errorf("%d workers: Steps = %d, want 9", workers, got)
		}
	}
	o := mustParse(t, "--model=test", "--workers=17")
	if _, err := o.plan(c); err == nil || !strings.Contains(err.Error(), "some text: ptb.train.txt, the share of worker 0 of 17") {
		t.Errorf("plan for 17 workers of 1003 words: error %v, want one that names file and share", err)
	}
}

func TestShortTextsAreRefusedByName(t *testing.T) {
	long, short := strings.Repeat(" some words \n", 80), " some words \n"
	for file, texts := range map[string][3]string{
		"ptb.train.txt": {short, long, long}, "ptb.valid.txt": {long, short, long}, "ptb.test.txt": {long, long, " some "},
	} {
		dir := writeCorpus(t, texts[0], texts[1], texts[2])
		_, err := mustParse(t, "--model=test", "--data_path="+dir).loadCorpus()
		if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "too short") {
			t.Errorf("%s too short: error %v, want one that names it", file, err)
		}
	}
}

// writeCorpus writes the three files to a new directory.
func writeCorpus(t testing.TB, train, valid, test string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"train": train, "valid": valid, "test": test} {
		if err := os.WriteFile(dir+"/ptb."+name+".txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
