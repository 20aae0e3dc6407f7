// Package clients holds programs of Go's two common libraries, run against a cluster of Haru.
package clients

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
)

const patience = 60 * time.Second

var config *rest.Config

func TestMain(m *testing.M) {
	var err error
	config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Fprintf(os.Stderr, "KUBECONFIG: %v\n", err)
		os.Exit(2)
	}
	// The default of 5 requests a second would make the tests wait for themselves.
	config.QPS, config.Burst = 1000, 1000
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// inProtobuf is what controllers written in Go use for the kinds that are built in.
func inProtobuf() *rest.Config {
	c := rest.CopyConfig(config)
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return c
}

func clientset(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(c)
	must(t, err)
	return client
}

// namespace makes a namespace that is deleted with the test.
func namespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	ctx := context.Background()
	made, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "go-"}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = client.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{}) })
	return made.Name
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until holds returns true; its error ends the test at once.
func eventually(t *testing.T, what string, holds func(ctx context.Context) (bool, error)) {
	t.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, patience, true, holds)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
