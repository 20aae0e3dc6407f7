package clients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchapply "k8s.io/client-go/applyconfigurations/batch/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const finalizer = "lab.example.com/stop"

// operator makes a Job of each Trainer by server-side apply, and writes back how many of its pods are active.
type operator struct {
	client.Client
	stopped chan string
}

func (o *operator) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var trainer Trainer
	if err := o.Get(ctx, request.NamespacedName, &trainer); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !trainer.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(&trainer, finalizer) {
			o.stopped <- trainer.Name
			return ctrl.Result{}, o.Update(ctx, &trainer)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&trainer, finalizer) {
		return ctrl.Result{}, o.Update(ctx, &trainer)
	}
	owner := metaapply.OwnerReference().WithAPIVersion(trainers.String()).WithKind("Trainer").WithName(trainer.Name).WithUID(trainer.UID).WithController(true).WithBlockOwnerDeletion(true)
	container := coreapply.Container().WithName("main").WithImage(trainer.Spec.Image)
	template := coreapply.PodTemplateSpec().WithSpec(coreapply.PodSpec().WithRestartPolicy(corev1.RestartPolicyNever).WithContainers(container))
	job := batchapply.Job(trainer.Name, trainer.Namespace).WithOwnerReferences(owner).WithSpec(batchapply.JobSpec().WithParallelism(trainer.Spec.Workers).WithCompletions(trainer.Spec.Workers).WithCompletionMode(batchv1.IndexedCompletion).WithTemplate(template))
	if err := o.Apply(ctx, job, client.FieldOwner("operator"), client.ForceOwnership); err != nil {
		return ctrl.Result{}, err
	}
	var made batchv1.Job
	if err := o.Get(ctx, request.NamespacedName, &made); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := trainer.DeepCopyObject().(*Trainer)
	trainer.Status.Active = made.Status.Active
	running := metav1.ConditionFalse
	if made.Status.Active == trainer.Spec.Workers {
		running = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&trainer.Status.Conditions, metav1.Condition{Type: "Running", Status: running, Reason: "Counted", ObservedGeneration: trainer.Generation})
	return ctrl.Result{}, o.Status().Patch(ctx, &trainer, client.MergeFrom(before))
}

// rules are its webhooks: a Trainer has one worker unless it says more, and at most eight.
type rules struct{}

func (rules) Default(_ context.Context, trainer *Trainer) error {
	if trainer.Spec.Workers == 0 {
		trainer.Spec.Workers = 1
	}
	return nil
}

func (rules) ValidateCreate(_ context.Context, trainer *Trainer) (admission.Warnings, error) {
	if trainer.Spec.Workers > 8 {
		return nil, errors.New("spec.workers: at most 8")
	}
	return admission.Warnings{"trainers are young"}, nil
}

func (r rules) ValidateUpdate(ctx context.Context, _, trainer *Trainer) (admission.Warnings, error) {
	return r.ValidateCreate(ctx, trainer)
}

func (rules) ValidateDelete(context.Context, *Trainer) (admission.Warnings, error) { return nil, nil }

// clusterForOperators is how envtest is used with a control plane that runs already.
func clusterForOperators(t *testing.T) *envtest.Environment {
	t.Helper()
	existing := true
	environment := &envtest.Environment{
		UseExistingCluster: &existing, Config: config, CRDs: []*apiextensionsv1.CustomResourceDefinition{definition()},
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			MutatingWebhooks:   []*admissionv1.MutatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "trainers"}, Webhooks: []admissionv1.MutatingWebhook{{Name: "default.lab.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr(admissionv1.SideEffectClassNone), ClientConfig: at("/mutate-lab-example-com-v1-trainer"), Rules: onTrainers()}}}},
			ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "trainers"}, Webhooks: []admissionv1.ValidatingWebhook{{Name: "check.lab.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr(admissionv1.SideEffectClassNone), ClientConfig: at("/validate-lab-example-com-v1-trainer"), Rules: onTrainers()}}}},
		},
	}
	_, err := environment.Start()
	must(t, err)
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	return environment
}

func at(path string) admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "default", Name: "operator", Path: &path}}
}

func onTrainers() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}, Rule: admissionv1.Rule{APIGroups: []string{trainers.Group}, APIVersions: []string{trainers.Version}, Resources: []string{"trainers"}}}}
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr(true)}
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"image"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{"workers": {Type: "integer", Format: "int32", Minimum: ptr(0.0)}, "image": {Type: "string", MinLength: ptr(int64(1))}}}
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec, "status": anything}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "trainers." + trainers.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: trainers.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "trainers", Singular: "trainer", Kind: "Trainer", ListKind: "TrainerList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: trainers.Version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}}},
		},
	}
}

// runOperator starts a manager that leads, with caches, an index, webhooks and the controller.
func runOperator(t *testing.T, environment *envtest.Environment, ns string) (ctrl.Manager, *operator) {
	t.Helper()
	serving := environment.WebhookInstallOptions
	manager, err := ctrl.NewManager(environment.Config, ctrl.Options{
		Scheme: schemeWithTrainers(), LeaderElection: true, LeaderElectionID: "operator.lab.example.com", LeaderElectionNamespace: ns, LeaderElectionReleaseOnCancel: true,
		Metrics:       server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: serving.LocalServingHost, Port: serving.LocalServingPort, CertDir: serving.LocalServingCertDir}),
	})
	must(t, err)
	o := &operator{Client: manager.GetClient(), stopped: make(chan string, 8)}
	must(t, manager.GetFieldIndexer().IndexField(context.Background(), &Trainer{}, "spec.image", func(found client.Object) []string { return []string{found.(*Trainer).Spec.Image} }))
	must(t, ctrl.NewControllerManagedBy(manager).For(&Trainer{}).Owns(&batchv1.Job{}).Complete(o))
	must(t, ctrl.NewWebhookManagedBy(manager, &Trainer{}).WithDefaulter(rules{}).WithValidator(rules{}).Complete())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the manager does not end")
		}
	})
	select {
	case <-manager.Elected():
	case <-time.After(patience):
		t.Fatal("the manager does not lead")
	}
	if !manager.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the caches are not synced")
	}
	eventually(t, "the webhooks listen", func(context.Context) (bool, error) {
		return manager.GetWebhookServer().StartedChecker()(nil) == nil, nil
	})
	return manager, o
}

func TestAnOperatorOfControllerRuntime(t *testing.T) {
	ctx, ns := context.Background(), namespace(t, clientset(t, config))
	manager, o := runOperator(t, clusterForOperators(t), ns)
	c := manager.GetClient()
	trainer := &Trainer{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "t"}, Spec: TrainerSpec{Image: "work:1"}}
	must(t, c.Create(ctx, trainer))
	if trainer.Spec.Workers != 1 {
		t.Fatalf("the webhook's default is %d", trainer.Spec.Workers)
	}
	err := c.Create(ctx, &Trainer{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "large"}, Spec: TrainerSpec{Image: "work:1", Workers: 9}})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.workers: at most 8") {
		t.Fatalf("what the webhook denies: %v", err)
	}
	err = c.Create(ctx, &Trainer{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "bare"}})
	if !apierrors.IsInvalid(err) {
		t.Fatalf("what the schema forbids: %v", err)
	}
	runs := func(workers int32) {
		eventually(t, fmt.Sprintf("%d workers run", workers), func(ctx context.Context) (bool, error) {
			var now Trainer
			if err := c.Get(ctx, client.ObjectKeyFromObject(trainer), &now); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			return now.Status.Active == workers && meta.IsStatusConditionTrue(now.Status.Conditions, "Running"), nil
		})
	}
	runs(1)
	// Its Job is the controller's: who deletes it sees it come back.
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "t"}}
	var first batchv1.Job
	must(t, c.Get(ctx, client.ObjectKeyFromObject(job), &first))
	must(t, c.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	eventually(t, "another Job is there", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(job), job)
		return err == nil && job.UID != first.UID, client.IgnoreNotFound(err)
	})
	var found TrainerList
	must(t, c.List(ctx, &found, client.InNamespace(ns), client.MatchingFields{"spec.image": "work:1"}))
	if len(found.Items) != 1 {
		t.Fatalf("%d by the index", len(found.Items))
	}
	must(t, c.Delete(ctx, trainer))
	select {
	case <-o.stopped:
	case <-time.After(patience):
		t.Fatal("the finalizer was not run")
	}
	eventually(t, "the garbage collector takes Job and pods", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := manager.GetAPIReader().List(ctx, &pods, client.InNamespace(ns)); err != nil {
			return false, err
		}
		err := manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(job), job)
		return apierrors.IsNotFound(err) && len(pods.Items) == 0, client.IgnoreNotFound(err)
	})
}
