//! Categories of tensors in pictures: their names, colours and meaning.

use gpumem_core::program::{Class, Part, Phase, Tensor};

/// The purpose of a tensor in a picture of memory, in the order in which areas are stacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    Weights,
    Master,
    Optimizer,
    Ema,
    Buffers,
    Gradients,
    Batch,
    Cache,
    Saved,
    Recomputed,
    Passing,
    Leaving,
    OutputGradient,
    WeightGradient,
    Scratch,
    Staging,
    ParkedActivation,
    ParkedState,
}

/// The name, colours and meaning of a category.
pub struct Look {
    /// The name in the picture of a page, and in its lists.
    pub name: &'static str,
    /// One sentence that says which tensors it has.
    pub meaning: &'static str,
    /// Colours on a light and on a dark page. [`tests`] holds their distances.
    pub light: &'static str,
    pub dark: &'static str,
    /// True if it is hatched, since another category has its colour.
    pub is_hatched: bool,
}

const fn look(name: &'static str, meaning: &'static str, light: &'static str, dark: &'static str) -> Look {
    Look { name, meaning, light, dark, is_hatched: false }
}

const fn hatched(look: Look) -> Look {
    Look { is_hatched: true, ..look }
}

impl Category {
    /// Every category, in order.
    pub const ALL: [Category; 18] = [
        Category::Weights,
        Category::Master,
        Category::Optimizer,
        Category::Ema,
        Category::Buffers,
        Category::Gradients,
        Category::Batch,
        Category::Cache,
        Category::Saved,
        Category::Recomputed,
        Category::Passing,
        Category::Leaving,
        Category::OutputGradient,
        Category::WeightGradient,
        Category::Scratch,
        Category::Staging,
        Category::ParkedActivation,
        Category::ParkedState,
    ];

    /// Returns how the category is shown. Hues follow Okabe and Ito, and a search moved them apart for every kind of colour vision.
    pub const fn look(self) -> Look {
        match self {
            Category::Weights => look("weights", "the parameters", "#40569b", "#98b1fa"),
            Category::Master => look("master copies", "f32 copies of 16-bit weights", "#73a8f4", "#253875"),
            Category::Optimizer => {
                look("optimizer", "state that the optimizer keeps for each parameter", "#a84278", "#aa6aae")
            }
            Category::Ema => look("moving averages", "moving averages of the weights", "#c4bb66", "#f1dd84"),
            Category::Buffers => look("buffers", "running statistics, step counter, seed", "#758db0", "#b2abb9"),
            Category::Gradients => {
                look("gradients", "gradients that are kept until the end of the step", "#852008", "#943508")
            }
            Category::Batch => {
                look("batch", "inputs and targets; in training twice, to fill one half ahead", "#adc4e9", "#624a65")
            }
            Category::Cache => look("cache", "keys and values of earlier time steps", "#291a72", "#766ad8"),
            Category::Saved => look(
                "saved for backward",
                "made by the forward pass and read again after the loss",
                "#1f8e5a",
                "#46b77c",
            ),
            Category::Recomputed => {
                hatched(look("recomputed", "computed a second time, for the backward pass", "#1f8e5a", "#46b77c"))
            }
            Category::Passing => {
                look("passing outputs", "outputs that no operation after the loss reads", "#89ebcc", "#26734d")
            }
            Category::Leaving => hatched(look(
                "leaving for the host",
                "saved for the backward pass, on the way to host memory",
                "#89ebcc",
                "#26734d",
            )),
            Category::OutputGradient => {
                look("output gradients", "gradients on their way back through the layers", "#dfa51d", "#f2b315")
            }
            Category::WeightGradient => {
                look("weight gradients", "gradients of parameters, until their update", "#ca5110", "#db7733")
            }
            Category::Scratch => hatched(look("scratch", "scratch memory of one operation", "#3d3e41", "#bac0d7")),
            Category::Staging => hatched(look(
                "staging",
                "buffers for optimizer state on its way from host memory and back",
                "#a84278",
                "#aa6aae",
            )),
            Category::ParkedActivation => {
                look("parked activations", "activations in host memory", "#8a919c", "#99a1ae")
            }
            Category::ParkedState => {
                look("parked state", "optimizer state and master copies in host memory", "#8a919c", "#99a1ae")
            }
        }
    }

    /// True if its tensors are in host memory.
    pub fn is_on_host(self) -> bool {
        matches!(self, Category::ParkedActivation | Category::ParkedState)
    }

    /// True if its tensors live inside one step, and share memory with others.
    pub fn is_inside(self) -> bool {
        !self.is_on_host() && self as usize >= Category::Saved as usize
    }

    /// Returns the name in CSV, without spaces.
    pub fn slug(self) -> String {
        self.look().name.replace(' ', "-")
    }
}

/// The part of a step in which an operation runs, as pictures show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    Forward,
    Backward,
    Update,
    Loss,
    Again,
    /// A copy to host memory.
    ToHost,
    /// A copy from host memory.
    FromHost,
    /// An exchange between ranks.
    Exchange,
}

impl From<Phase> for Stretch {
    fn from(phase: Phase) -> Stretch {
        match phase {
            Phase::Forward => Stretch::Forward,
            Phase::Backward => Stretch::Backward,
            Phase::Update => Stretch::Update,
            Phase::Loss => Stretch::Loss,
            Phase::Again => Stretch::Again,
        }
    }
}

/// Returns the category of a tensor that is in the arena or, with `on_host`, in host memory.
///
/// `stretches` are those of all operations, and `loss` the index of the first one of the loss, or their number in a forward pass.
pub fn of_tensor(tensor: &Tensor, on_host: bool, stretches: &[Stretch], loss: usize) -> Category {
    match tensor.class {
        Class::Host => Category::ParkedActivation,
        Class::Parameter => Category::Weights,
        Class::Gradient => Category::Gradients,
        Class::Moment if on_host => Category::ParkedState,
        Class::Moment => Category::Optimizer,
        Class::Average => Category::Ema,
        Class::Buffer | Class::State => Category::Buffers,
        Class::Input | Class::Target => Category::Batch,
        Class::Cache => Category::Cache,
        Class::Transient => inside(tensor, stretches, loss),
    }
}

/// Returns the category of a tensor that lives inside the step.
fn inside(tensor: &Tensor, stretches: &[Stretch], loss: usize) -> Category {
    let at = |operation: u32| stretches.get(operation as usize).copied().unwrap_or(Stretch::Forward);
    let (first, last) = (at(tensor.first), at(tensor.last));
    let is_forward = tensor.first as usize <= loss;
    match tensor.part {
        Part::OutputGradient => Category::OutputGradient,
        Part::ParameterGradient => Category::WeightGradient,
        Part::Workspace => Category::Scratch,
        Part::Staging => Category::Staging,
        Part::Output | Part::Saved => match (first, last) {
            (Stretch::Again, _) => Category::Recomputed,
            (_, Stretch::ToHost) if is_forward => Category::Leaving,
            (Stretch::FromHost, _) => Category::Saved,
            _ if is_forward && tensor.last as usize > loss => Category::Saved,
            _ => Category::Passing,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Normal vision, and three kinds of colour blindness by the matrices of Machado, Oliveira and Fernandes (2009).
    const VISIONS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
    ];

    /// Returns a colour in the CIE 1976 L*a*b* space, as somebody with this vision sees it.
    fn seen(colour: &str, vision: &[[f64; 3]; 3]) -> [f64; 3] {
        let channel = |at: usize| f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        let linear = |c: f64| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        let given = [1, 3, 5].map(|at| linear(channel(at)));
        let dot = |row: &[f64; 3]| row.iter().zip(&given).map(|(a, b)| a * b).sum::<f64>().clamp(0.0, 1.0);
        let [r, g, b] = [dot(&vision[0]), dot(&vision[1]), dot(&vision[2])];
        let root = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let x = root((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047);
        let y = root(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = root((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn colours_are_far_apart_for_every_kind_of_vision() {
        let arena = || Category::ALL.into_iter().filter(|category| !category.is_on_host());
        for (theme, vision) in [0, 1].into_iter().flat_map(|theme| VISIONS.iter().map(move |vision| (theme, vision))) {
            let colour = |category: Category| [category.look().light, category.look().dark][theme];
            for (one, other) in arena().flat_map(|one| arena().map(move |other| (one, other))) {
                // A hatch is a second mark.
                if one as usize >= other as usize || one.look().is_hatched != other.look().is_hatched {
                    continue;
                }
                let [a, b] = [one, other].map(|category| seen(colour(category), vision));
                let distance = a.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                assert!(distance >= 20.0, "{one:?} and {other:?}: {distance:.1}");
            }
        }
    }

    #[test]
    fn categories_are_in_order() {
        assert!(Category::ALL.iter().enumerate().all(|(index, &category)| category as usize == index));
        assert!(!Category::Cache.is_inside() && Category::Saved.is_inside() && !Category::ParkedState.is_inside());
        let mut names: Vec<String> = Category::ALL.into_iter().map(Category::slug).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Category::ALL.len());
    }
}
