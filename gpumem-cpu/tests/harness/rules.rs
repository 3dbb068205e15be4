//! Rules of optimizers beside their definition: a small network, the gradients of each of its steps, and what every rule must do.

use super::graphs::{chain, numbers};
use super::{Loaded, assert_close};
use gpumem_core::Update;
use gpumem_core::error::Error;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::train::Descent;
use gpumem_core::train::optim::{Optimizer, Sgd};

/// A parameter, and the dimensions of its matrix or matrices, if it has any.
pub type Parameter = (&'static str, Option<[usize; 2]>);

/// A network of maps of `[2, 6, 5]`, in the language, and its parameters.
pub struct Trained<'p> {
    pub layers: &'static str,
    pub parameters: &'p [Parameter],
}

/// A parameter in a step: its dimensions, its number among all, and the step's.
pub struct At {
    pub name: &'static str,
    pub matrix: Option<[usize; 2]>,
    pub step: u32,
}

impl Trained<'_> {
    pub fn load(&self, optimizer: Optimizer, moments: u64, update: Update, skips_overflow: bool) -> Loaded {
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[2, 6, 5])).unwrap();
        let output = chain(&mut graph, input, self.layers);
        let training = Training {
            loss: &[Term::MSE],
            moments,
            update,
            skips_overflow,
            input_gradient: false,
            descent: Descent::PLAIN,
        };
        let mut loaded = Loaded::new(&graph, output, training, 4, optimizer);
        for (index, (name, length)) in [("input", 240), ("target", 8)].into_iter().enumerate() {
            let words: Vec<u32> = (0..length).map(|i| ((i * 7 + index + 1) as f32 * 0.61).sin().to_bits()).collect();
            loaded.set(name, &words);
        }
        for (index, (name, _)) in self.parameters.iter().enumerate() {
            let length = loaded.get(name).unwrap().len();
            let word = |i: usize| (((i * 5 + index) as f32 * 0.83).cos() * 0.3).to_bits();
            loaded.set(name, &(0..length).map(word).collect::<Vec<u32>>());
        }
        loaded
    }

    /// So many steps of an optimizer, each against what `stepped` makes of weights, gradients and states: the next weights, to
    /// `tolerance`, and the states, to 1e-5. States begin with as many zeros as `lengths` says of a parameter with so many elements; those
    /// of no elements are not there.
    pub fn check<const N: usize>(
        &self,
        (optimizer, update, steps, tolerance): (Optimizer, Update, u32, f64),
        lengths: impl Fn(usize, Option<[usize; 2]>) -> [usize; N],
        stepped: impl Fn(&At, &[f32], &[f64], &mut [Vec<f64>; N]) -> Vec<f32>,
    ) {
        // Gradients that stay are those of a step without an update.
        let mut loaded = self.load(optimizer, optimizer.moments(), update, false);
        let mut plain = self.load(Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }), 0, Update::Separate, false);
        let begin = |&(name, matrix): &Parameter, plain: &mut Loaded| {
            lengths(plain.get(name).unwrap().len(), matrix).map(|length| vec![0.0; length])
        };
        let mut states: Vec<[Vec<f64>; N]> = self.parameters.iter().map(|it| begin(it, &mut plain)).collect();
        for step in 1..=steps {
            let before: Vec<Vec<f32>> = self.parameters.iter().map(|(name, _)| loaded.get(name).unwrap()).collect();
            for ((name, _), values) in self.parameters.iter().zip(&before) {
                plain.set(name, &values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>());
            }
            loaded.step().unwrap();
            plain.step().unwrap();
            for ((&(name, matrix), before), states) in self.parameters.iter().zip(&before).zip(&mut states) {
                let gradient = plain.get(&format!("{name}.gradient")).unwrap();
                let gradient: Vec<f64> = gradient.into_iter().map(f64::from).collect();
                let expected = stepped(&At { name, matrix, step }, before, &gradient, states);
                let what = format!("{optimizer:?}, {update:?}, {name} after step {step}");
                assert_close(&what, &loaded.get(name).unwrap(), &expected, tolerance);
                for (index, state) in states.iter().enumerate() {
                    let found = loaded.get(&format!("{name}.moment{index}"));
                    assert_eq!(found.is_some(), !state.is_empty(), "{what}: state {index}");
                    let expected: Vec<f32> = state.iter().map(|&x| x as f32).collect();
                    assert_close(&what, &found.unwrap_or_default(), &expected, 1e-5);
                }
            }
        }
    }

    /// A step whose gradients are not finite leaves parameters and states, `count` tensors, as they are.
    pub fn check_skipped(&self, optimizer: Optimizer, count: usize) {
        let mut loaded = self.load(optimizer, optimizer.moments(), Update::Separate, true);
        let all = |loaded: &mut Loaded| -> Vec<Vec<f32>> {
            let of = |name: &str| [name.to_string(), format!("{name}.moment0"), format!("{name}.moment1")];
            let names = self.parameters.iter().flat_map(|(name, _)| of(name));
            names.filter_map(|name| loaded.get(&name)).collect()
        };
        loaded.step().unwrap();
        let before = all(&mut loaded);
        assert_eq!(before.len(), count);
        loaded.set("input", &[f32::INFINITY.to_bits(); 240]);
        loaded.step().unwrap();
        assert_eq!(all(&mut loaded), before);
    }

    /// What another optimizer keeps is not taken for what this one keeps.
    pub fn check_refused(&self, pairs: &[(Optimizer, Optimizer)]) {
        for (one, other) in pairs {
            match self.load(*one, other.moments(), Update::Fused, false).step() {
                Err(Error::Unsupported { what, .. }) => {
                    assert!(what.contains("name the optimizer in `TRAIN`"), "{what}")
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
