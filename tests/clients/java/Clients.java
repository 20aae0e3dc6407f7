// Programs of fabric8's Java client, run against a cluster of Haru: one line a test, "ok NAME" or "not ok NAME".

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.apps.DeploymentBuilder;
import io.fabric8.kubernetes.api.model.resource.v1.ResourceClaim;
import io.fabric8.kubernetes.api.model.resource.v1.ResourceClaimBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfigBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

public class Clients {
  private static final long PATIENCE_SECONDS = 60;
  private static final KubernetesClient client = new KubernetesClientBuilder().build();
  private static String namespace;

  private interface Program {
    void run() throws Exception;
  }

  private static final Map<String, Program> PROGRAMS = new LinkedHashMap<>();

  static {
    PROGRAMS.put("objects_are_created_edited_and_deleted", Clients::objects);
    PROGRAMS.put("an_informer_follows_a_pod_until_it_runs", Clients::informer);
    PROGRAMS.put("waiting_for_a_pod_ends_when_it_is_ready", Clients::waiting);
    PROGRAMS.put("a_deployment_is_applied_on_the_server_and_scaled", Clients::apply);
    PROGRAMS.put("a_claim_is_allocated_a_device", Clients::claim);
    PROGRAMS.put("a_candidate_leads_and_releases_its_lease", Clients::leader);
  }

  public static void main(String[] arguments) throws Exception {
    namespace = client.namespaces().resource(new NamespaceBuilder().withNewMetadata().withGenerateName("java-").endMetadata().build()).create().getMetadata().getName();
    for (Map.Entry<String, Program> program : PROGRAMS.entrySet()) {
      try {
        program.getValue().run();
        System.out.println("ok " + program.getKey());
      } catch (Throwable error) {
        System.out.println("not ok " + program.getKey() + ": " + error);
        error.printStackTrace();
      }
    }
    client.namespaces().withName(namespace).delete();
    client.close();
  }

  private static void objects() {
    var maps = client.configMaps().inNamespace(namespace);
    ConfigMap made = maps.resource(new ConfigMapBuilder().withNewMetadata().withName("m").endMetadata().addToData("a", "1").build()).create();
    maps.withName("m").edit(now -> new ConfigMapBuilder(now).addToData("b", "2").build());
    check(maps.withName("m").get().getData().equals(Map.of("a", "1", "b", "2")), "what was edited is there");
    refused(409, () -> maps.resource(new ConfigMapBuilder(made).addToData("a", "3").build()).update());
    refused(422, () -> maps.resource(new ConfigMapBuilder().withNewMetadata().withName("Upper").endMetadata().build()).create());
    check(maps.withName("m").delete().size() == 1, "one is deleted");
    check(maps.withName("m").get() == null, "it is gone");
  }

  private static void informer() throws Exception {
    CountDownLatch runs = new CountDownLatch(1);
    try (SharedIndexInformer<Pod> informer = client.pods().inNamespace(namespace).inform(new ResourceEventHandler<>() {
      @Override public void onAdd(Pod pod) { seen(pod); }
      @Override public void onUpdate(Pod before, Pod pod) { seen(pod); }
      @Override public void onDelete(Pod pod, boolean unknown) { }
      private void seen(Pod pod) {
        if (pod.getMetadata().getName().equals("followed") && "Running".equals(pod.getStatus().getPhase())) {
          runs.countDown();
        }
      }
    })) {
      client.resource(pod("followed").build()).create();
      check(runs.await(PATIENCE_SECONDS, TimeUnit.SECONDS), "the informer sees it run");
      check(informer.getStore().getByKey(namespace + "/followed") != null, "it is in the store");
    }
  }

  private static void waiting() {
    client.resource(pod("awaited").build()).create();
    client.pods().inNamespace(namespace).withName("awaited").waitUntilReady(PATIENCE_SECONDS, TimeUnit.SECONDS);
    client.pods().inNamespace(namespace).withName("awaited").getLog();
    client.pods().inNamespace(namespace).withName("awaited").withGracePeriod(0).delete();
    client.pods().inNamespace(namespace).withName("awaited").waitUntilCondition(pod -> pod == null, PATIENCE_SECONDS, TimeUnit.SECONDS);
  }

  private static void apply() {
    Deployment wanted = new DeploymentBuilder().withNewMetadata().withName("d").withNamespace(namespace).endMetadata()
        .withNewSpec().withReplicas(1).withNewSelector().addToMatchLabels("app", "d").endSelector()
        .withNewTemplate().withNewMetadata().addToLabels("app", "d").endMetadata().withSpec(pod("d").build().getSpec()).endTemplate().endSpec().build();
    client.resource(wanted).serverSideApply();
    PatchContext second = new PatchContext.Builder().withPatchType(PatchType.SERVER_SIDE_APPLY).withFieldManager("second").withForce(false).build();
    refused(409, () -> client.resource(new DeploymentBuilder(wanted).editSpec().withReplicas(3).endSpec().build()).patch(second));
    var deployment = client.apps().deployments().inNamespace(namespace).withName("d");
    deployment.scale(2);
    deployment.waitUntilCondition(now -> now.getStatus() != null && Integer.valueOf(2).equals(now.getStatus().getReadyReplicas()), PATIENCE_SECONDS, TimeUnit.SECONDS);
  }

  private static void claim() {
    ResourceClaim wanted = new ResourceClaimBuilder().withNewMetadata().withName("card").withNamespace(namespace).endMetadata()
        .withNewSpec().withNewDevices().addNewRequest().withName("gpu").withNewExactly().withDeviceClassName("gpu.nvidia.com").endExactly().endRequest().endDevices().endSpec().build();
    client.resource(wanted).create();
    client.resource(pod("holder").editSpec().addNewResourceClaim().withName("gpu").withResourceClaimName("card").endResourceClaim()
        .editFirstContainer().withNewResources().addNewClaim().withName("gpu").endClaim().endResources().endContainer().endSpec().build()).create();
    ResourceClaim held = client.resource(wanted).waitUntilCondition(
        now -> now.getStatus() != null && !now.getStatus().getReservedFor().isEmpty(), PATIENCE_SECONDS, TimeUnit.SECONDS);
    check(held.getStatus().getAllocation().getDevices().getResults().size() == 1, "one device is allocated");
  }

  private static void leader() throws Exception {
    CountDownLatch leads = new CountDownLatch(1);
    CountDownLatch stopped = new CountDownLatch(1);
    var election = client.leaderElector().withConfig(new LeaderElectionConfigBuilder().withName("lock")
        .withLock(new LeaseLock(namespace, "lock", "me")).withLeaseDuration(Duration.ofSeconds(15)).withRenewDeadline(Duration.ofSeconds(10))
        .withRetryPeriod(Duration.ofMillis(100)).withReleaseOnCancel(true)
        .withLeaderCallbacks(new LeaderCallbacks(leads::countDown, stopped::countDown, name -> { })).build()).build();
    var running = election.start();
    check(leads.await(PATIENCE_SECONDS, TimeUnit.SECONDS), "it leads");
    running.cancel(true);
    check(stopped.await(PATIENCE_SECONDS, TimeUnit.SECONDS), "it has stopped");
    // This client releases a Lease by letting it last a second.
    client.leases().inNamespace(namespace).withName("lock").waitUntilCondition(
        lease -> Integer.valueOf(1).equals(lease.getSpec().getLeaseDurationSeconds()), PATIENCE_SECONDS, TimeUnit.SECONDS);
  }

  private static PodBuilder pod(String name) {
    return new PodBuilder().withNewMetadata().withName(name).withNamespace(namespace).endMetadata()
        .withNewSpec().addNewContainer().withName("main").withImage("work:1").endContainer().endSpec();
  }

  private static void refused(int code, Runnable request) {
    try {
      request.run();
    } catch (KubernetesClientException error) {
      check(error.getCode() == code, "refused with " + error.getCode() + ": " + error.getMessage());
      return;
    }
    throw new AssertionError("accepted, not refused with " + code);
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }
}
