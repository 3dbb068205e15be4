//! Metrics, compared with cases computed by hand.

use gpumem_core::run::tensor::Tensor;
use gpumem_core::typed::D;
use gpumem_data::IGNORED;
use gpumem_train::metrics::{
    Accuracy, ConfusionMatrix, F1, Goal, MeanAbsoluteError, MeanIou, Metric, Perplexity, Table, select,
};

type Logits = Tensor<f32, (D<4>, D<3>)>;
type Labels = Tensor<u32, (D<4>,)>;

/// Predictions 2, 0, 1, 0; orders 2 1 0, 0 2 1, 1 0 2, 0 1 2.
fn logits() -> Logits {
    Tensor::from([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0], [1.0, 2.0, 0.0], [5.0, 4.0, 3.0]])
}

fn labels() -> Labels {
    Tensor::from([2, 2, 1, 1])
}

fn value<O, T>(mut metric: impl Metric<O, T>, outputs: &O, targets: &T, len: usize) -> Option<f64> {
    metric.add(outputs, targets, len).unwrap();
    let value = metric.value();
    // A second time it is twice the samples, and then none.
    metric.add(outputs, targets, len).unwrap();
    let again = metric.value();
    assert!(value.zip(again).is_none_or(|(value, again)| (value - again).abs() < 1e-12));
    metric.reset();
    assert!(metric.value().is_none());
    value
}

fn close(value: Option<f64>, expected: f64) {
    let value = value.expect("a value");
    assert!((value - expected).abs() < 1e-9, "{value} and {expected}");
}

#[test]
fn accuracy_counts_labels_among_the_largest() {
    close(value(Accuracy::new(), &logits(), &labels(), 4), 2.0 / 4.0);
    close(value(Accuracy::top(2), &logits(), &labels(), 4), 4.0 / 4.0);
    // Padding does not count, nor does the ignored label.
    close(value(Accuracy::new(), &logits(), &labels(), 3), 2.0 / 3.0);
    close(value(Accuracy::new(), &logits(), &Tensor::from([2, IGNORED, 1, 1]), 4), 2.0 / 3.0);
    close(value(Accuracy::new().ignore_label(1), &logits(), &labels(), 4), 1.0 / 2.0);
    assert_eq!(value(Accuracy::new(), &logits(), &Tensor::from([IGNORED; 4]), 4), None);
    assert_eq!(value(Accuracy::new(), &logits(), &labels(), 0), None);
    // Of equal logits the first class comes first.
    close(value(Accuracy::new(), &Logits::zeros(), &Tensor::from([0, 1, 0, 2]), 4), 0.5);
}

#[test]
fn names_and_directions() {
    fn about(metric: &impl Metric<Logits, Labels>) -> (String, Goal) {
        (metric.name(), metric.goal())
    }
    assert_eq!(about(&Accuracy::new()), ("accuracy".into(), Goal::Highest));
    assert_eq!(about(&Accuracy::top(5)), ("top5".into(), Goal::Highest));
    assert_eq!(about(&Perplexity::new()), ("perplexity".into(), Goal::Lowest));
    assert_eq!(about(&MeanIou::new()), ("mean_iou".into(), Goal::Highest));
    assert_eq!(about(&F1::mean()), ("f1".into(), Goal::Highest));
    assert_eq!(about(&F1::of(2)), ("f1_class2".into(), Goal::Highest));
    assert_eq!(about(&ConfusionMatrix::new()), ("confusion".into(), Goal::Highest));
    let error: &dyn Metric<Logits, Logits> = &MeanAbsoluteError::new();
    assert_eq!((error.name(), error.goal()), ("mae".into(), Goal::Lowest));
}

#[test]
fn perplexity_is_the_exponential_of_the_mean_cross_entropy() {
    // Of equal logits, each of the three classes has a third.
    close(value(Perplexity::new(), &Logits::zeros(), &labels(), 4), 3.0);
    let odds = |share: f64| share.ln() as f32;
    // Labels have probabilities of 1/2 and 1/8: the geometric mean of 2 and 8 is 4.
    let logits: Tensor<f32, (D<2>, D<3>)> =
        Tensor::from([[odds(0.5), odds(0.25), odds(0.25)], [odds(0.125), odds(0.5), odds(0.375)]]);
    let given = value(Perplexity::new(), &logits, &Tensor::<u32, (D<2>,)>::from([0, 0]), 2).unwrap();
    assert!((given - 4.0).abs() < 1e-6, "{given}");
    // Large logits do not overflow.
    close(value(Perplexity::new(), &Tensor::<f32, (D<1>, D<2>)>::from([[1e30, 1e30]]), &Tensor::from([1]), 1), 2.0);
}

#[test]
fn tokens_have_their_classes_last() {
    let logits: Tensor<f32, (D<2>, D<2>, D<3>)> =
        Tensor::from([[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]]);
    let tokens: Tensor<u32, (D<2>, D<2>)> = Tensor::from([[1, 0], [2, 0]]);
    close(value(Accuracy::new(), &logits, &tokens, 2), 3.0 / 4.0);
    close(value(Accuracy::new(), &logits, &tokens, 1), 1.0);
}

#[test]
fn maps_have_their_classes_first() {
    // [B, C, H, W] of 1, 2, 1, 3: predictions 1, 0, 1.
    let logits: Tensor<f32, (D<1>, D<2>, D<1>, D<3>)> = Tensor::from_vec(vec![0.0, 1.0, 0.0, 1.0, 0.0, 1.0]).unwrap();
    let map: Tensor<u32, (D<1>, D<1>, D<3>)> = Tensor::from([[[1, 1, 1]]]);
    close(value(Accuracy::new(), &logits, &map, 1), 2.0 / 3.0);
    // Class 0: no label, one prediction: 0. Class 1: two of three.
    close(value(MeanIou::new(), &logits, &map, 1), (0.0 + 2.0 / 3.0) / 2.0);
}

#[test]
fn scores_of_classes() {
    // Labels 2, 2, 1, 1 and predictions 2, 0, 1, 0. Class 0: 0 of 2. Class 1: 1 of 2. Class 2: 1 of 2.
    close(value(MeanIou::new(), &logits(), &labels(), 4), (0.0 + 0.5 + 0.5) / 3.0);
    // Class 0: 0 of 0 + 2. Class 1: 2 of 2 + 1. Class 2: 2 of 2 + 1.
    close(value(F1::mean(), &logits(), &labels(), 4), (0.0 + 2.0 / 3.0 + 2.0 / 3.0) / 3.0);
    close(value(F1::of(1), &logits(), &labels(), 4), 2.0 / 3.0);
    close(value(F1::of(0), &logits(), &labels(), 4), 0.0);
    close(value(F1::of(2), &logits(), &labels(), 4), 2.0 / 3.0);
    // A class that is nowhere does not count in means.
    close(value(MeanIou::new(), &logits(), &Tensor::from([2; 4]), 1), 1.0);
}

#[test]
fn the_confusion_matrix_has_labels_in_rows() {
    let mut metric = ConfusionMatrix::new();
    let none: &dyn Metric<Logits, Labels> = &metric;
    assert_eq!((none.table(), none.value()), (None, None));
    metric.add(&logits(), &labels(), 4).unwrap();
    metric.add(&logits(), &labels(), 1).unwrap();
    let metric: &mut dyn Metric<Logits, Labels> = &mut metric;
    let counts = vec![0, 0, 0, 1, 1, 0, 1, 0, 2];
    assert_eq!(metric.table(), Some(Table { name: "confusion".into(), columns: 3, counts }));
    assert_eq!(metric.table().unwrap().rows().nth(1), Some(&[1, 1, 0][..]));
    metric.reset();
    assert_eq!(metric.table().unwrap().counts, [0; 9]);
}

#[test]
fn the_mean_absolute_error_leaves_padding_out() {
    let outputs: Tensor<f32, (D<3>, D<2>)> = Tensor::from([[1.0, 2.0], [0.0, -1.0], [100.0, 100.0]]);
    let targets: Tensor<f32, (D<3>, D<2>)> = Tensor::from([[0.0, 4.0], [0.5, -1.0], [0.0, 0.0]]);
    close(value(MeanAbsoluteError::new(), &outputs, &targets, 2), 3.5 / 4.0);
    assert_eq!(value(MeanAbsoluteError::new(), &outputs, &targets, 0), None);
}

#[test]
fn one_of_several_outputs_is_selected() {
    type Outputs = (Tensor<f32, (D<4>, D<1>)>, Logits);
    let outputs: Outputs = (Tensor::zeros(), logits());
    let metric =
        select(ConfusionMatrix::new(), |outputs: &Outputs| &outputs.1, |labels: &Labels| labels).named("second");
    let mut metric: Box<dyn Metric<Outputs, Labels>> = Box::new(metric);
    metric.add(&outputs, &labels(), 4).unwrap();
    assert_eq!((metric.name(), metric.goal(), metric.value()), ("second".into(), Goal::Highest, None));
    assert_eq!(metric.table().unwrap().name, "second");
    metric.reset();
    assert_eq!(metric.table().unwrap().counts, [0; 9]);
    let unnamed = select(Accuracy::new(), |outputs: &Outputs| &outputs.1, |labels: &Labels| labels);
    assert_eq!(Metric::<Outputs, Labels>::name(&unnamed), "accuracy");
    close(value(unnamed, &outputs, &labels(), 4), 0.5);
}

#[test]
fn a_nan_is_never_better() {
    let nan = f64::NAN;
    for goal in [Goal::Highest, Goal::Lowest] {
        assert!(!goal.is_better(nan, 0.0) && !goal.is_better(nan, nan) && goal.is_better(0.0, nan));
        assert!(!goal.is_better(1.0, 1.0));
    }
    assert!(Goal::Highest.is_better(2.0, 1.0) && Goal::Lowest.is_better(1.0, 2.0));
}

#[test]
fn impossible_metrics_say_what_to_do() {
    fn error<O, T>(mut metric: impl Metric<O, T>, outputs: &O, targets: &T) -> String {
        metric.add(outputs, targets, 4).unwrap_err().to_string()
    }
    assert_eq!(
        error(Accuracy::top(0), &logits(), &labels()),
        "metric `top0`: no label is among no logits; take `Accuracy::top(1)` or more"
    );
    let beyond = |name: &str| {
        format!(
            "metric `{name}`: label 3 at position 1 of a batch is not below the 3 classes; correct the data, or leave the label out with \
             `.ignore_label(3)`"
        )
    };
    let wrong: Labels = Tensor::from([0, 3, 0, 0]);
    assert_eq!(error(Accuracy::new(), &logits(), &wrong), beyond("accuracy"));
    assert_eq!(error(Perplexity::new(), &logits(), &wrong), beyond("perplexity"));
    assert_eq!(error(MeanIou::new(), &logits(), &wrong), beyond("mean_iou"));
    assert_eq!(error(F1::mean(), &logits(), &wrong), beyond("f1"));
    assert_eq!(error(ConfusionMatrix::new(), &logits(), &wrong), beyond("confusion"));
    let negative: Labels = Tensor::from([u32::MAX; 4]);
    assert!(error(Accuracy::new(), &logits(), &negative).contains("label -1 at position 0"));
    let many: Tensor<f32, (D<1>, D<5000>)> = Tensor::zeros();
    assert_eq!(
        error(ConfusionMatrix::new(), &many, &Tensor::<u32, (D<1>,)>::from([0])),
        "metric `confusion`: a matrix of 5000 classes would take too much memory; it may have 4096, and `F1` and `MeanIou` any number"
    );
    let square: Tensor<f32, (D<2>, D<3>, D<3>)> = Tensor::zeros();
    let labels: Tensor<u32, (D<2>, D<3>)> = Tensor::zeros();
    assert!(
        error(Accuracy::new(), &square, &labels)
            .starts_with("metric `accuracy`: the classes of outputs [2, 3, 3] with")
    );
    close(value(Accuracy::new().class_axis(2), &square, &labels, 2), 1.0);
}
