package clients

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	builtin "k8s.io/client-go/kubernetes/scheme"
)

// Trainer is the custom resource of the operator under test: so many workers that start together.
type Trainer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              TrainerSpec   `json:"spec,omitempty"`
	Status            TrainerStatus `json:"status,omitempty"`
}

type TrainerSpec struct {
	Workers int32  `json:"workers,omitempty"`
	Image   string `json:"image,omitempty"`
}

type TrainerStatus struct {
	Active     int32              `json:"active,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

type TrainerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Trainer `json:"items"`
}

var trainers = schema.GroupVersion{Group: "lab.example.com", Version: "v1"}

func (in *Trainer) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), in.Status.Conditions...)
	return &out
}

func (in *TrainerList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = nil
	for i := range in.Items {
		out.Items = append(out.Items, *in.Items[i].DeepCopyObject().(*Trainer))
	}
	return &out
}

func schemeWithTrainers() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := builtin.AddToScheme(scheme); err != nil {
		panic(err)
	}
	scheme.AddKnownTypes(trainers, &Trainer{}, &TrainerList{})
	metav1.AddToGroupVersion(scheme, trainers)
	return scheme
}
