package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

func TestTypedClientsReadAndWrite(t *testing.T) {
	for form, c := range map[string]*rest.Config{"json": config, "protobuf": inProtobuf()} {
		t.Run(form, func(t *testing.T) {
			ctx, client := context.Background(), clientset(t, c)
			maps := client.CoreV1().ConfigMaps(namespace(t, client))
			made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}, BinaryData: map[string][]byte{"b": {0, 255}}}, metav1.CreateOptions{})
			must(t, err)
			if made.UID == "" || string(made.BinaryData["b"]) != "\x00\xff" {
				t.Fatalf("created %+v", made)
			}
			stale := made.DeepCopy()
			made.Data = map[string]string{"a": "1"}
			_, err = maps.Update(ctx, made, metav1.UpdateOptions{})
			must(t, err)
			stale.Data = map[string]string{"a": "2"}
			if _, err = maps.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Fatalf("an update of what has changed: %v", err)
			}
			must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
				now, err := maps.Get(ctx, "one", metav1.GetOptions{})
				if err != nil {
					return err
				}
				now.Data["a"] = "3"
				_, err = maps.Update(ctx, now, metav1.UpdateOptions{})
				return err
			}))
			patched, err := maps.Patch(ctx, "one", types.StrategicMergePatchType, []byte(`{"data":{"c":"4"}}`), metav1.PatchOptions{})
			must(t, err)
			if patched.Data["a"] != "3" || patched.Data["c"] != "4" {
				t.Fatalf("patched to %v", patched.Data)
			}
			_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "Not_a_name"}}, metav1.CreateOptions{})
			var status apierrors.APIStatus
			if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details.Causes[0].Field != "metadata.name" {
				t.Fatalf("a wrong name: %v", err)
			}
			must(t, maps.Delete(ctx, "one", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(patched.UID))}))
			if _, err = maps.Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Fatalf("after its deletion: %v", err)
			}
		})
	}
}

func TestListsComeInPagesAndWatchesGoOnFromThem(t *testing.T) {
	ctx, client := context.Background(), clientset(t, inProtobuf())
	maps := client.CoreV1().ConfigMaps(namespace(t, client))
	for i := range 25 {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%02d", i), Labels: map[string]string{"third": fmt.Sprint(i%3 == 0)}}}, metav1.CreateOptions{})
		must(t, err)
	}
	pages, seen := 0, 0
	pages0 := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		pages++
		return maps.List(ctx, options)
	})
	pages0.PageSize = 10
	must(t, pages0.EachListItem(ctx, metav1.ListOptions{LabelSelector: "third=true"}, func(runtime.Object) error { seen++; return nil }))
	if seen != 9 {
		t.Fatalf("%d items in %d pages", seen, pages)
	}
	list, err := maps.List(ctx, metav1.ListOptions{Limit: 10})
	must(t, err)
	if len(list.Items) != 10 || list.Continue == "" {
		t.Fatalf("a page of 10 has %d, continue %q", len(list.Items), list.Continue)
	}
	events, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
	must(t, err)
	defer events.Stop()
	must(t, maps.Delete(ctx, "m-07", metav1.DeleteOptions{}))
	select {
	case event := <-events.ResultChan():
		if event.Type != watch.Deleted || event.Object.(*corev1.ConfigMap).Name != "m-07" {
			t.Fatalf("%s of %v", event.Type, event.Object)
		}
	case <-time.After(patience):
		t.Fatal("no event")
	}
}

func TestSharedInformersFollowTheCluster(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := clientset(t, inProtobuf())
	ns := namespace(t, client)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
	pods := factory.Core().V1().Pods()
	must(t, pods.Informer().AddIndexers(cache.Indexers{"node": func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Spec.NodeName}, nil }}))
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatalf("%v is not synced", kind)
		}
	}
	made, err := client.CoreV1().Pods(ns).Create(ctx, pod("followed"), metav1.CreateOptions{})
	must(t, err)
	eventually(t, "the pod runs in the informer's store", func(context.Context) (bool, error) {
		p, err := pods.Lister().Pods(ns).Get(made.Name)
		return err == nil && p.Status.Phase == corev1.PodRunning, nil
	})
	p, err := pods.Lister().Pods(ns).Get(made.Name)
	must(t, err)
	there, err := pods.Informer().GetIndexer().ByIndex("node", p.Spec.NodeName)
	if err != nil || len(there) != 1 {
		t.Fatalf("%d pods on %s: %v", len(there), p.Spec.NodeName, err)
	}
}

func TestDynamicMetadataAndDiscoveryClients(t *testing.T) {
	ctx, client := context.Background(), clientset(t, config)
	ns := namespace(t, client)
	found, err := discovery.NewDiscoveryClientForConfig(config)
	must(t, err)
	groups, err := restmapper.GetAPIGroupResources(found)
	must(t, err)
	mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceClaim"}, "v1")
	must(t, err)
	if mapping.Resource.Resource != "resourceclaims" {
		t.Fatalf("ResourceClaim is %v", mapping.Resource)
	}
	open, err := found.OpenAPIV3().Paths()
	must(t, err)
	if _, there := open["apis/resource.k8s.io/v1"]; !there {
		t.Fatalf("OpenAPI v3 has %d paths, none of resource.k8s.io/v1", len(open))
	}
	anything, err := dynamic.NewForConfig(config)
	must(t, err)
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	of := func(value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "shared"}, "data": map[string]any{"k": value}}}
	}
	_, err = anything.Resource(maps).Namespace(ns).Apply(ctx, "shared", of("1"), metav1.ApplyOptions{FieldManager: "first"})
	must(t, err)
	_, err = anything.Resource(maps).Namespace(ns).Apply(ctx, "shared", of("2"), metav1.ApplyOptions{FieldManager: "second"})
	if !apierrors.IsConflict(err) {
		t.Fatalf("an apply of another manager's field: %v", err)
	}
	_, err = anything.Resource(maps).Namespace(ns).Apply(ctx, "shared", of("2"), metav1.ApplyOptions{FieldManager: "second", Force: true})
	must(t, err)
	only, err := metadata.NewForConfig(config)
	must(t, err)
	partial, err := only.Resource(maps).Namespace(ns).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=shared"})
	must(t, err)
	if len(partial.Items) != 1 || partial.Items[0].ManagedFields == nil {
		t.Fatalf("metadata of %v", partial.Items)
	}
}

func TestApplyConfigurationsKeepWhatOthersOwn(t *testing.T) {
	ctx, client := context.Background(), clientset(t, inProtobuf())
	ns := namespace(t, client)
	services := client.CoreV1().Services(ns)
	applied := coreapply.Service("s", ns).WithSpec(coreapply.ServiceSpec().WithSelector(map[string]string{"app": "a"}).WithPorts(coreapply.ServicePort().WithName("http").WithPort(80).WithTargetPort(intstr.FromInt32(8080))))
	_, err := services.Apply(ctx, applied, metav1.ApplyOptions{FieldManager: "operator"})
	must(t, err)
	_, err = services.Patch(ctx, "s", types.MergePatchType, []byte(`{"metadata":{"annotations":{"by":"hand"}}}`), metav1.PatchOptions{FieldManager: "hand"})
	must(t, err)
	now, err := services.Get(ctx, "s", metav1.GetOptions{})
	must(t, err)
	extracted, err := coreapply.ExtractService(now, "operator")
	must(t, err)
	if extracted.Annotations != nil || *extracted.Spec.Ports[0].Port != 80 {
		t.Fatalf("extracted %+v", extracted)
	}
	extracted.Spec.Ports[0].WithPort(81)
	after, err := services.Apply(ctx, extracted, metav1.ApplyOptions{FieldManager: "operator", Force: true})
	must(t, err)
	if len(after.Spec.Ports) == 0 || after.Annotations["by"] != "hand" || after.Spec.ClusterIP != now.Spec.ClusterIP {
		t.Fatalf("applied to %+v", after)
	}
}

func TestADeviceIsAllocatedToAClaimOfATypedClient(t *testing.T) {
	ctx, client := context.Background(), clientset(t, inProtobuf())
	ns := namespace(t, client)
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "card"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com"}}}}}}
	_, err := client.ResourceV1().ResourceClaims(ns).Create(ctx, claim, metav1.CreateOptions{})
	must(t, err)
	p := pod("holder")
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr("card")}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	_, err = client.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{})
	must(t, err)
	eventually(t, "the claim is allocated and reserved", func(ctx context.Context) (bool, error) {
		now, err := client.ResourceV1().ResourceClaims(ns).Get(ctx, "card", metav1.GetOptions{})
		if err != nil || now.Status.Allocation == nil {
			return false, err
		}
		return len(now.Status.Allocation.Devices.Results) == 1 && now.Status.ReservedFor[0].Name == "holder", nil
	})
}

func TestAGangOfTypedObjectsStartsAsAWhole(t *testing.T) {
	ctx, client := context.Background(), clientset(t, inProtobuf())
	ns := namespace(t, client)
	group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "pair"}, Spec: schedulingv1alpha2.PodGroupSpec{SchedulingPolicy: schedulingv1alpha2.PodGroupSchedulingPolicy{Gang: &schedulingv1alpha2.GangSchedulingPolicy{MinCount: 2}}}}
	_, err := client.SchedulingV1alpha2().PodGroups(ns).Create(ctx, group, metav1.CreateOptions{})
	must(t, err)
	member := func(name string) {
		p := pod(name)
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr("pair")}
		_, err := client.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{})
		must(t, err)
	}
	member("a")
	_, err = client.CoreV1().Pods(ns).Create(ctx, pod("later"), metav1.CreateOptions{})
	must(t, err)
	eventually(t, "a pod that came later runs", func(ctx context.Context) (bool, error) {
		p, err := client.CoreV1().Pods(ns).Get(ctx, "later", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning, err
	})
	alone, err := client.CoreV1().Pods(ns).Get(ctx, "a", metav1.GetOptions{})
	must(t, err)
	if alone.Spec.NodeName != "" {
		t.Fatal("the first member is bound alone to", alone.Spec.NodeName)
	}
	member("b")
	eventually(t, "all run", func(ctx context.Context) (bool, error) {
		pods, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
		return err == nil && len(pods.Items) == 3, err
	})
}

func TestAnEvictionIsHeldUpByABudget(t *testing.T) {
	ctx, client := context.Background(), clientset(t, inProtobuf())
	ns := namespace(t, client)
	one := intstr.FromInt32(1)
	_, err := client.PolicyV1().PodDisruptionBudgets(ns).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}, metav1.CreateOptions{})
	must(t, err)
	_, err = client.CoreV1().Pods(ns).Create(ctx, pod("kept"), metav1.CreateOptions{})
	must(t, err)
	eventually(t, "the budget has counted the pod", func(ctx context.Context) (bool, error) {
		b, err := client.PolicyV1().PodDisruptionBudgets(ns).Get(ctx, "b", metav1.GetOptions{})
		return err == nil && b.Status.CurrentHealthy == 1, err
	})
	err = client.CoreV1().Pods(ns).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "kept"}})
	if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Fatalf("an eviction that the budget does not allow: %v", err)
	}
}

func TestLogsOfAContainerAreRead(t *testing.T) {
	ctx, client := context.Background(), clientset(t, config)
	ns := namespace(t, client)
	_, err := client.CoreV1().Pods(ns).Create(ctx, pod("writer"), metav1.CreateOptions{})
	must(t, err)
	eventually(t, "its log can be read", func(ctx context.Context) (bool, error) {
		stream, err := client.CoreV1().Pods(ns).GetLogs("writer", &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			return false, nil
		}
		defer stream.Close()
		_, err = io.ReadAll(stream)
		return err == nil, err
	})
}

func TestAJobRunsToItsEnd(t *testing.T) {
	ctx, client := context.Background(), clientset(t, inProtobuf())
	ns := namespace(t, client)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"simulated.haru.dev/run-seconds": "0.1"}}, Spec: pod("x").Spec}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := client.BatchV1().Jobs(ns).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "short"}, Spec: batchv1.JobSpec{Parallelism: ptr(int32(2)), Completions: ptr(int32(2)), Template: template}}, metav1.CreateOptions{})
	must(t, err)
	eventually(t, "the Job is complete", func(ctx context.Context) (bool, error) {
		job, err := client.BatchV1().Jobs(ns).Get(ctx, "short", metav1.GetOptions{})
		return err == nil && job.Status.Succeeded == 2 && job.Status.CompletionTime != nil, err
	})
}

func TestOneOfTwoCandidatesLeadsUntilItLeaves(t *testing.T) {
	client := clientset(t, config)
	ns := namespace(t, client)
	leads := make(chan string, 2)
	candidate := func(name string) context.CancelFunc {
		ctx, cancel := context.WithCancel(context.Background())
		lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: ns, Name: "lock"}, Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: name}}
		go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, ReleaseOnCancel: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 100 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads <- name }, OnStoppedLeading: func() {}},
		})
		return cancel
	}
	leader := func() string {
		select {
		case name := <-leads:
			return name
		case <-time.After(patience):
			t.Fatal("nobody leads")
			return ""
		}
	}
	leave := candidate("first")
	if name := leader(); name != "first" {
		t.Fatal(name, "leads")
	}
	defer candidate("second")()
	select {
	case name := <-leads:
		t.Fatal(name, "leads beside the first")
	case <-time.After(300 * time.Millisecond):
	}
	leave()
	if name := leader(); name != "second" {
		t.Fatal(name, "leads after the first has left")
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "work:1"}}},
	}
}

func ptr[T any](value T) *T { return &value }
