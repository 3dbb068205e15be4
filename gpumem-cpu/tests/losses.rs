//! Losses with their options: the value against its formula in f64, as PyTorch's pages have it, and the gradient against finite
//! differences of that.

mod harness;

use gpumem_core::graph::{Graph, Type};
use gpumem_core::lower::{Term, Training};
use gpumem_core::program::Measure;
use gpumem_core::program::loss::{Compares, LossOptions, Over, Reduction};
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Loss, Update};
use harness::Loaded;
use harness::graphs::join;
use std::borrow::Cow;

const BATCH: usize = 3;

/// Logits, or logarithms of probabilities, and targets of a loss.
struct Case {
    measure: Measure,
    options: LossOptions,
    /// Positions before and after the class axis.
    dims: Vec<u64>,
}

impl Case {
    /// Outer positions of the batch, classes, inner positions.
    fn sizes(&self) -> [usize; 3] {
        match *self.dims {
            [classes, height, width] => [BATCH, classes as usize, (height * width) as usize],
            [steps, classes] => [BATCH * steps as usize, classes as usize, 1],
            _ => [BATCH, self.dims[0] as usize, 1],
        }
    }

    fn weight(&self, class: usize) -> f64 {
        match &*self.options.weights {
            [] => 1.0,
            [weight] => *weight,
            weights => weights[class],
        }
    }

    /// The formula.
    fn value(&self, x: &[f64], t: &[f64], labels: &[u32]) -> f64 {
        let [_, classes, inner] = self.sizes();
        let options = &self.options;
        let default = self.measure.row().number.map_or(0.0, |number| number.default);
        let number = options.number.unwrap_or(default);
        let (mut sum, mut count) = (0.0, 0.0);
        if self.measure.row().over == Over::Elements {
            for (i, (&x, &t)) in x.iter().zip(t).enumerate() {
                let (d, p) = (x - t, self.weight(i / inner % classes));
                let sigmoid = 1.0 / (1.0 + (-x).exp());
                sum += match self.measure {
                    Measure::Mse => d * d,
                    Measure::Mean => x,
                    Measure::L1 => d.abs(),
                    Measure::SmoothL1 if d.abs() < number => d * d / (2.0 * number),
                    Measure::SmoothL1 => d.abs() - number / 2.0,
                    Measure::Huber if d.abs() <= number => d * d / 2.0,
                    Measure::Huber => number * (d.abs() - number / 2.0),
                    Measure::BceWithLogits => -(p * t * sigmoid.ln() + (1.0 - t) * (1.0 - sigmoid).ln()),
                    Measure::KlDiv if options.log_target => t.exp() * (t - x),
                    Measure::KlDiv => t * (t.ln() - x),
                    other => panic!("{other:?} is not a loss of elements"),
                };
                count += 1.0;
            }
        } else {
            for (position, &label) in labels.iter().enumerate() {
                let at = |class| (position / inner * classes + class) * inner + position % inner;
                if !options.probabilities && options.ignored == Some(label) {
                    continue;
                }
                let total: f64 = (0..classes).map(|class| x[at(class)].exp()).sum();
                for class in 0..classes {
                    let hit = match options.probabilities {
                        true => t[at(class)],
                        false => f64::from(u8::from(class == label as usize)),
                    };
                    let smoothed = (1.0 - number) * hit + number / classes as f64;
                    sum -= match self.measure {
                        Measure::Nll => hit * self.weight(class) * x[at(class)],
                        _ => smoothed * self.weight(class) * (x[at(class)] - total.ln()),
                    };
                }
                count += if options.probabilities { 1.0 } else { self.weight(label as usize) };
            }
        }
        match options.reduction {
            Reduction::Mean => sum / count,
            Reduction::Sum => sum,
            Reduction::BatchMean => sum / BATCH as f64,
        }
    }

    fn check(&self) {
        let [outer, classes, inner] = self.sizes();
        let length = outer * classes * inner;
        let wave = |i: usize, by: f64| ((i as f64 * by).sin() * 4096.0).round() / 4096.0;
        let x: Vec<f64> = (0..length).map(|i| 2.0 * wave(i, 1.7)).collect();
        let t: Vec<f64> = (0..length).map(|i| (0.5 + 0.49 * wave(i, 2.3)) as f32 as f64).collect();
        let labels: Vec<u32> = (0..outer * inner)
            .map(|i| match self.options.ignored {
                Some(ignored) if i % 3 == 1 => ignored,
                _ => (i * 7 + i / 5) as u32 % classes as u32,
            })
            .collect();
        let what = format!("{:?} {:?} of {:?}", self.measure, self.options, self.dims);
        let (loss, gradient) = self.run(&x, &t, &labels);
        let expected = self.value(&x, &t, &labels);
        assert!(
            (f64::from(loss) - expected).abs() <= 1e-5 * expected.abs().max(1e-3),
            "{what}: {loss}, not {expected}"
        );
        for i in 0..length {
            const STEP: f64 = 1e-5;
            let moved = |by: f64| {
                let mut x = x.clone();
                x[i] += by;
                self.value(&x, &t, &labels)
            };
            let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            let found = f64::from(gradient[i]);
            assert!((found - slope).abs() <= 1e-5 * slope.abs().max(1.0), "{what}: {i}: {found}, not {slope}");
        }
    }

    /// The loss, and the gradient of what it measures.
    fn run(&self, x: &[f64], t: &[f64], labels: &[u32]) -> (f32, Vec<f32>) {
        let mut graph = Graph::default();
        let shape = Type::numbers(Shape::new(&self.dims));
        let nodes = [graph.input(shape).unwrap(), graph.input(shape).unwrap()];
        let output = join(&mut graph, &nodes, "Add");
        let term = Term { options: self.options.clone(), ..Term::of(self.measure) };
        let training = Training {
            loss: &[term],
            moments: 0,
            update: Update::Separate,
            skips_overflow: false,
            input_gradient: true,
            descent: gpumem_core::train::Descent::PLAIN,
        };
        let stay = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
        let mut loaded = Loaded::new(&graph, output, training, BATCH as u64, stay);
        let bits = |values: &[f64]| values.iter().map(|&x| (x as f32).to_bits()).collect::<Vec<u32>>();
        loaded.set("input", &bits(x));
        loaded.set("input1", &vec![0; x.len()]);
        match self.options.compares(self.measure) {
            Compares::Nothing => {}
            Compares::Numbers => loaded.set("target", &bits(t)),
            Compares::Classes => loaded.set("target", labels),
            other => panic!("{other:?} is not what elements or positions compare with"),
        }
        (loaded.step().unwrap(), loaded.get("input.gradient").unwrap())
    }
}

const SHAPES: [&[u64]; 3] = [&[5], &[4, 5], &[5, 2, 3]];

fn check(measure: Measure, options: LossOptions) {
    for dims in SHAPES {
        for reduction in [Reduction::Mean, Reduction::Sum] {
            let options = LossOptions { reduction, ..options.clone() };
            Case { measure, options, dims: dims.to_vec() }.check();
        }
    }
}

fn with(change: impl Fn(&mut LossOptions)) -> LossOptions {
    let mut options = LossOptions::DEFAULT;
    change(&mut options);
    options
}

const WEIGHTS: Cow<'static, [f64]> = Cow::Borrowed(&[0.5, 2.0, 0.0, 1.25, 3.0]);

/// Every loss of elements, with the options of its row.
#[test]
fn losses_of_elements() {
    for &loss in Loss::ALL.iter().filter(|loss| loss.row().over == Over::Elements) {
        let (measure, row) = (Measure::from(loss), loss.row());
        check(measure, LossOptions::DEFAULT);
        for number in [0.5, 1.75].into_iter().filter(|_| row.number.is_some()) {
            check(measure, with(|it| it.number = Some(number)));
        }
        for weights in [Cow::Borrowed(&[2.5][..]), WEIGHTS].into_iter().filter(|_| row.weights.is_some()) {
            check(measure, with(|it| it.weights = weights.clone()));
        }
    }
    check(Measure::SmoothL1, with(|it| it.number = Some(0.0)));
}

#[test]
fn divergences() {
    for log_target in [false, true] {
        check(Measure::KlDiv, with(|it| it.log_target = log_target));
        let options = with(|it| (it.log_target, it.reduction) = (log_target, Reduction::BatchMean));
        Case { measure: Measure::KlDiv, options, dims: vec![4, 5] }.check();
    }
}

#[test]
fn losses_of_classes() {
    for weights in [Cow::Borrowed(&[][..]), WEIGHTS] {
        for ignored in [None, Some(-100i32 as u32), Some(3)] {
            check(Measure::Nll, with(|it| (it.weights, it.ignored) = (weights.clone(), ignored)));
            for number in [None, Some(0.1), Some(1.0)] {
                let options = with(|it| {
                    (it.weights, it.ignored, it.number) = (weights.clone(), ignored, number);
                });
                check(Measure::CrossEntropy, options);
            }
        }
        for number in [None, Some(0.1)] {
            let options = with(|it| {
                (it.weights, it.probabilities, it.number) = (weights.clone(), true, number);
            });
            check(Measure::CrossEntropy, options);
        }
    }
}

/// More classes, or more positions of a class, than the backend's tiles have elements.
#[test]
fn losses_of_many_classes_and_positions() {
    for dims in [&[70][..], &[3, 9, 5]] {
        let weights: Vec<f64> = (0..dims[0]).map(|class| 0.5 * (class % 4) as f64).collect();
        for (number, probabilities) in [(None, false), (Some(0.1), false), (None, true), (Some(0.1), true)] {
            let options = with(|it| {
                it.weights = weights.clone().into();
                (it.number, it.probabilities) = (number, probabilities);
            });
            Case { measure: Measure::CrossEntropy, options, dims: dims.to_vec() }.check();
        }
        let options = with(|it| it.weights = weights.clone().into());
        Case { measure: Measure::Nll, options, dims: dims.to_vec() }.check();
    }
}

/// As PyTorch has it: the mean of nothing is NaN, and nothing has no gradient.
#[test]
fn no_position_counts() {
    for measure in [Measure::CrossEntropy, Measure::Nll] {
        let case = Case { measure, options: with(|it| it.ignored = Some(9)), dims: vec![5] };
        let (loss, gradient) = case.run(&[0.5; 15], &[], &[9; 3]);
        assert!(loss.is_nan());
        assert_eq!(gradient, [0.0; 15]);
    }
}

/// Where `x` is its target the slope is 0.
#[test]
fn kinks() {
    for measure in [Measure::L1, Measure::SmoothL1] {
        let case = Case { measure, options: with(|it| it.number = Some(0.0)), dims: vec![1] };
        let (loss, gradient) = case.run(&[1.0, 2.0, 3.0], &[1.0, 1.0, 4.0], &[]);
        assert!((loss - 2.0 / 3.0).abs() < 1e-6);
        let gradient: Vec<f32> = gradient.iter().map(|g| (3.0 * g).round()).collect();
        assert_eq!(gradient, [0.0, 1.0, -1.0]);
    }
}

/// No probability has no logarithm, and no part in the divergence.
#[test]
fn targets_of_zero() {
    let case = Case { measure: Measure::KlDiv, options: with(|it| it.reduction = Reduction::Sum), dims: vec![1] };
    let (loss, gradient) = case.run(&[-1.0, -2.0, -3.0], &[0.0, 1.0, 0.0], &[]);
    assert_eq!((loss, gradient), (2.0, vec![0.0, -1.0, 0.0]));
}
