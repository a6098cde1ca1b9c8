package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// manifests are the objects of deploy/kubernetes/postern.yaml, by kind and name.
type manifests struct {
	jobs        map[string]*batchv1.Job
	deployments map[string]*appsv1.Deployment
	services    map[string]*corev1.Service
	budgets     map[string]*policyv1.PodDisruptionBudget
	configs     map[string]*corev1.ConfigMap
}

// read decodes every object strictly: a field that its type does not have is an error.
func read(t *testing.T) manifests {
	t.Helper()
	text, err := os.ReadFile(root + "/deploy/kubernetes/postern.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := manifests{
		map[string]*batchv1.Job{},
		map[string]*appsv1.Deployment{},
		map[string]*corev1.Service{},
		map[string]*policyv1.PodDisruptionBudget{},
		map[string]*corev1.ConfigMap{},
	}
	for _, doc := range bytes.Split(text, []byte("\n---\n")) {
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := yaml.Unmarshal(doc, &head); err != nil {
			t.Fatal(err)
		}
		var into any
		name := head.Metadata.Name
		switch head.APIVersion + " " + head.Kind {
		case "batch/v1 Job":
			m.jobs[name] = &batchv1.Job{}
			into = m.jobs[name]
		case "apps/v1 Deployment":
			m.deployments[name] = &appsv1.Deployment{}
			into = m.deployments[name]
		case "v1 Service":
			m.services[name] = &corev1.Service{}
			into = m.services[name]
		case "policy/v1 PodDisruptionBudget":
			m.budgets[name] = &policyv1.PodDisruptionBudget{}
			into = m.budgets[name]
		case "v1 ConfigMap":
			m.configs[name] = &corev1.ConfigMap{}
			into = m.configs[name]
		case "v1 ServiceAccount":
			into = &corev1.ServiceAccount{}
		default:
			t.Fatalf("%s %s is not known here", head.APIVersion, head.Kind)
		}
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			t.Errorf("%s %s: %v", head.Kind, name, err)
		}
	}
	return m
}

func postern(t *testing.T) string {
	t.Helper()
	bin := t.TempDir() + "/postern"
	build := exec.Command("go", "build", "-o", bin, "./cmd/postern")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// settings returns the flag of every variable that the program knows.
func settings(t *testing.T, bin string) map[string]string {
	t.Helper()
	cmd := exec.Command(bin, "config", "-o", "json")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct{ Name, Variable string }
	}
	if err := json.Unmarshal(out, &list); err != nil || len(list.Items) < 10 {
		t.Fatalf("%v: %s", err, out)
	}
	known := map[string]string{}
	for _, s := range list.Items {
		known[s.Variable] = s.Name
	}
	return known
}

func env(c *corev1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

func TestContainersAreStartedAsTheProgramWants(t *testing.T) {
	m, bin := read(t), postern(t)
	known := settings(t, bin)
	pods := map[string]corev1.PodSpec{"migrate": m.jobs["postern-migrate"].Spec.Template.Spec,
		"serve": m.deployments["postern-serve"].Spec.Template.Spec, "work": m.deployments["postern-work"].Spec.Template.Spec}
	for name, pod := range pods {
		c := &pod.Containers[0]
		help, err := exec.Command(bin, append(slices.Clone(c.Args), "--help")...).Output()
		if err != nil || !strings.Contains(string(help), "postern "+strings.Join(c.Args, " ")) {
			t.Errorf("%s: postern %v is no command: %v", name, c.Args, err)
		}
		var values []string
		for _, e := range c.Env {
			if e.Name == "GOMEMLIMIT" { // which the runtime of Go reads
				limit, err := resource.ParseQuantity(strings.TrimSuffix(e.Value, "B"))
				if most := c.Resources.Limits.Memory(); err != nil || limit.Cmp(*most) >= 0 {
					t.Errorf("%s: GOMEMLIMIT=%s, of a container that may have %s: %v", name, e.Value, most, err)
				}
				continue
			}
			if known[e.Name] == "" {
				t.Errorf("%s: %s is no setting", name, e.Name)
			} else if !strings.Contains(string(help), "("+e.Name+")") {
				t.Errorf("%s: postern %v does not know %s", name, c.Args, e.Name)
			}
			if e.ValueFrom == nil && !strings.HasPrefix(e.Value, "/") {
				values = append(values, e.Name+"="+e.Value)
			}
		}
		check := exec.Command(bin, "config", "-o", "json") // refuses a value that cannot be
		check.Env = append(values, "HOME="+t.TempDir())
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if s := c.SecurityContext; s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Contains(s.Capabilities.Drop, "ALL") || !*pod.SecurityContext.RunAsNonRoot {
			t.Errorf("%s may do more than it needs", name)
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s asks for nothing, or has no limit", name)
		}
		for _, mount := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name }) {
				t.Errorf("%s mounts %s, which is no volume", name, mount.Name)
			}
		}
	}
}

// goes returns how long a container sleeps before it is told to stop, and how long it answers all afterwards. What has
// a port of the API does both: the first for those who are told of endpoints, the second for those who ask /readyz,
// which have the time to do so.
func goes(t *testing.T, name string, c *corev1.Container, api bool) (sleep, delay time.Duration) {
	t.Helper()
	if !api {
		return 0, 0
	}
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil {
		t.Errorf("%s is told to stop while it is still sent requests: its preStop does not sleep", name)
	} else {
		sleep = time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	}
	delay, err := time.ParseDuration(env(c, "POSTERN_DRAIN_DELAY"))
	if asks := time.Duration(c.ReadinessProbe.PeriodSeconds) * time.Second; err != nil || delay <= asks {
		t.Errorf("%s answers for %s after readiness has dropped (%v), and is asked for it every %s", name, delay, err, asks)
	}
	return sleep, delay
}

func TestPortsProbesAndGraceAgree(t *testing.T) {
	m := read(t)
	for name, d := range m.deployments {
		pod := d.Spec.Template.Spec
		c := &pod.Containers[0]
		ports := map[string]string{}
		for _, p := range c.Ports {
			ports[p.Name] = ":" + strconv.Itoa(int(p.ContainerPort))
		}
		if env(c, "POSTERN_LISTEN") != ports["http"] || env(c, "POSTERN_METRICS_LISTEN") != ports["metrics"] || ports["metrics"] == "" {
			t.Errorf("%s: it listens at %q and %q, and has the ports %v", name, env(c, "POSTERN_LISTEN"), env(c, "POSTERN_METRICS_LISTEN"), ports)
		}
		if at := d.Spec.Template.Annotations["prometheus.io/port"]; ":"+at != ports["metrics"] {
			t.Errorf("%s is scraped at %s", name, at)
		}
		for path, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			if probe == nil || probe.HTTPGet.Path != path || ports[probe.HTTPGet.Port.StrVal] == "" {
				t.Errorf("%s: the probe of %s is %+v", name, path, probe)
			}
		}
		if !slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool {
			return v.Name == "POSTERN_DEPLOYMENT" && v.ValueFrom != nil && v.ValueFrom.FieldRef.FieldPath == "metadata.namespace"
		}) {
			t.Errorf("%s does not take the namespace for its deployment: a copy of its database would send", name)
		}
		grace, err := time.ParseDuration(env(c, "POSTERN_SHUTDOWN_GRACE"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		sleep, delay := goes(t, name, c, ports["http"] != "")
		killed := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
		if killed <= sleep+delay+grace+5*time.Second {
			t.Errorf("%s is killed after %s, while it sleeps %s, answers for %s and may take %s for what is open", name, killed, sleep, delay, grace)
		}
		if *d.Spec.Replicas < 2 {
			t.Errorf("%s has one replica: nothing remains while it is moved", name)
		}
		if !maps.Equal(d.Spec.Selector.MatchLabels, d.Spec.Template.Labels) {
			t.Errorf("%s does not select its own pods", name)
		}
		budget := m.budgets[name]
		if budget == nil || budget.Spec.MaxUnavailable.IntValue() != 1 || !maps.Equal(budget.Spec.Selector.MatchLabels, d.Spec.Template.Labels) {
			t.Errorf("%s has no disruption budget of its own", name)
		}
	}
	s := m.services["postern"]
	if s == nil || s.Spec.Ports[0].TargetPort.StrVal != "http" || !maps.Equal(s.Spec.Selector, m.deployments["postern-serve"].Spec.Template.Labels) {
		t.Errorf("the service leads elsewhere: %+v", s)
	}
}

// The ConfigMap is a directory of files that postern apply reads: with nothing to send it to, that is all that it does.
func TestTheConfigMapIsWhatTheProgramApplies(t *testing.T) {
	m, bin := read(t), postern(t)
	serve := m.deployments["postern-serve"].Spec.Template.Spec
	mounted := slices.IndexFunc(serve.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil })
	if mounted < 0 || m.configs[serve.Volumes[mounted].ConfigMap.Name] == nil {
		t.Fatal("postern-serve mounts no ConfigMap of these manifests")
	}
	at := slices.IndexFunc(serve.Containers[0].VolumeMounts, func(v corev1.VolumeMount) bool {
		return v.Name == serve.Volumes[mounted].Name
	})
	if at < 0 || serve.Containers[0].VolumeMounts[at].MountPath != env(&serve.Containers[0], "POSTERN_CONFIG_FILE") {
		t.Error("POSTERN_CONFIG_FILE is not where the ConfigMap is mounted")
	}
	dir := t.TempDir()
	for name, text := range m.configs[serve.Volumes[mounted].ConfigMap.Name].Data {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(bin, "apply", "-f", dir, "--url", "http://127.0.0.1:1").CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 { // unreachable
		t.Errorf("%v: %s", err, out)
	}
}
