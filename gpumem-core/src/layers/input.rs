//! Checks of a layer's inputs.

use super::builder::Value;
use super::mistake::Mistake;
use crate::graph::Elements;
use crate::shape::{Shape, product};
use alloc::format;

impl Elements {
    /// Returns the name of these elements in messages, and the layer that turns them into numbers; `None` if they are numbers.
    pub fn no_numbers(self) -> Option<[&'static str; 2]> {
        match self {
            Elements::Numbers => None,
            Elements::Indices => Some(["tokens", "Embedding"]),
            Elements::Bytes => Some(["bytes", "Normalize"]),
        }
    }
}

impl Value {
    /// Returns the shape of a value of numbers.
    ///
    /// # Errors
    /// Tokens or bytes.
    pub fn numbers(&self) -> Result<Shape, Mistake> {
        self.numbers_for("numbers")
    }

    /// The shape of numbers or of tokens, for what moves elements and does not look at them.
    ///
    /// # Errors
    /// Bytes.
    pub fn numbers_or_tokens(&self) -> Result<Shape, Mistake> {
        match self.elements {
            Elements::Indices => Ok(self.shape),
            Elements::Numbers | Elements::Bytes => self.numbers(),
        }
    }

    /// Returns the shape of a value of numbers. Unlike [`Value::numbers`], takes the words for the wanted value in the message.
    fn numbers_for(&self, wanted: &str) -> Result<Shape, Mistake> {
        match self.elements.no_numbers() {
            None => Ok(self.shape),
            Some([given, remedy]) => {
                Err(Mistake::new(format!("works on {wanted}, but it is given {given}; put `{remedy}` before it")))
            }
        }
    }

    /// Returns `[C, H, W]` of a feature map.
    ///
    /// # Errors
    /// A value that is none.
    pub fn feature_map(&self) -> Result<[u64; 3], Mistake> {
        self.numbers_for("a feature map [C, H, W]")?;
        self.any_map()
    }

    /// Returns `[C, H, W]` of a feature map, or of an image of bytes.
    ///
    /// # Errors
    /// A value that is none.
    pub fn any_map(&self) -> Result<[u64; 3], Mistake> {
        if self.elements == Elements::Indices {
            self.numbers_for("a feature map [C, H, W]")?;
        }
        self.shape.as_map().ok_or_else(|| {
            let remedy = if self.shape.rank() == 4 { "; layers of volumes end in `3d`" } else { "" };
            let given = self.shape;
            Mistake::new(format!("works on a feature map [C, H, W], but the previous layer produces {given}{remedy}"))
        })
    }

    /// Returns `[C, D, H, W]` of a volume.
    ///
    /// # Errors
    /// A value that is none.
    pub fn volume(&self) -> Result<[u64; 4], Mistake> {
        self.numbers_for("a volume [C, D, H, W]")?;
        <[u64; 4]>::try_from(self.shape.dims()).map_err(|_| {
            let remedy = if self.shape.rank() == 3 { "; layers of maps end in `2d`" } else { "" };
            let given = self.shape;
            Mistake::new(format!("works on a volume [C, D, H, W], but the previous layer produces {given}{remedy}"))
        })
    }

    /// Returns `[C, L]` of a signal.
    ///
    /// # Errors
    /// A value that is none.
    pub fn signal(&self) -> Result<[u64; 2], Mistake> {
        self.numbers_for("a signal [C, L]")?;
        <[u64; 2]>::try_from(self.shape.dims()).map_err(|_| {
            Mistake::new(format!("works on a signal [C, L], but the previous layer produces {}", self.shape))
        })
    }

    /// Returns `[T, D]` of a sequence.
    ///
    /// # Errors
    /// A value that is none.
    pub fn sequence(&self) -> Result<[u64; 2], Mistake> {
        self.numbers_for("a sequence [T, D]")?;
        <[u64; 2]>::try_from(self.shape.dims()).map_err(|_| {
            Mistake::new(format!("works on a sequence [T, D], but the previous layer produces {}", self.shape))
        })
    }

    /// Returns rows and features of a vector or a sequence. `expected` features make a better message.
    ///
    /// # Errors
    /// A value that is neither.
    pub fn rows(&self, expected: Option<u64>) -> Result<[u64; 2], Mistake> {
        let shape = self.numbers()?;
        let elements = shape.elements().unwrap_or(u64::MAX);
        match (shape.dims(), expected) {
            (&[features], _) => Ok([1, features]),
            (&[steps, features], _) => Ok([steps, features]),
            (_, Some(expected)) if expected == elements => Err(Mistake::new(format!(
                "expects {expected} input features, but the previous layer produces {shape}; put `Flatten` before it"
            ))),
            (_, Some(expected)) => Err(Mistake::new(format!(
                "expects {expected} input features, but the previous layer produces {shape} = {elements}"
            ))),
            (_, None) => Err(Mistake::new(format!(
                "works on a vector or a sequence, but the previous layer produces {shape}; \
                 put `Flatten` or `GlobalAvgPool` before it"
            ))),
        }
    }

    /// Returns the shape as rows of the last axes, `[rows, elements of a row]` or `[elements]`, and the axes of a row. `expected` are those
    /// axes; `None` for the last axis of a vector or a sequence.
    ///
    /// # Errors
    /// Other axes than the expected ones; a value of more than two axes without expected ones.
    pub fn last_axes(&self, expected: Option<&[u64]>) -> Result<(Shape, Shape), Mistake> {
        let shape = self.numbers()?;
        let Some(expected) = expected else {
            return match shape.dims() {
                &[features] | &[_, features] => Ok((shape, Shape::new(&[features]))),
                _ => Err(Mistake::new(format!(
                    "works on a vector or a sequence, but the previous layer produces {shape}; write which of its last axes \
                     make a row, as `normalized_shape = {}`, or put `Flatten` or `GlobalAvgPool` before it",
                    shape.last()
                ))),
            };
        };
        match shape.dims().strip_suffix(expected) {
            Some(&[]) => Ok((Shape::new(&[product(expected)]), Shape::new(expected))),
            Some(rows) => Ok((Shape::new(&[product(rows), product(expected)]), Shape::new(expected))),
            None if expected.len() == 1 => Err(Mistake::new(format!(
                "expects {} input features, but the previous layer produces {shape}",
                expected[0]
            ))),
            None => Err(Mistake::new(format!(
                "expects {} as the last axes, but the previous layer produces {shape}",
                Shape::new(expected)
            ))),
        }
    }

    /// Returns the axis of a sample that PyTorch calls `dim`.
    ///
    /// # Errors
    /// The batch, or an axis that does not exist.
    pub fn axis(&self, dim: i64) -> Result<usize, Mistake> {
        self.axis_of("dim", dim)
    }

    /// Returns the axis of a sample that PyTorch calls `dim`, for an argument of another name.
    ///
    /// # Errors
    /// As for [`Value::axis`].
    pub fn axis_of(&self, argument: &'static str, dim: i64) -> Result<usize, Mistake> {
        let rank = self.shape.rank() as i64;
        match dim {
            0 => Err(Mistake::of(
                argument,
                "cannot work along the batch, which is axis 0; the axes of a sample begin at 1",
            )),
            _ if (1..=rank).contains(&dim) => Ok(dim as usize - 1),
            _ if (-rank..0).contains(&dim) => Ok((rank + dim) as usize),
            _ => Err(Mistake::of(
                argument,
                format!("has `{argument} = {dim}`, but {} has axes 1 to {rank}, or -{rank} to -1", self.shape),
            )),
        }
    }

    /// Returns a mistake unless the last axis has `expected` elements. `None` if it has, or nothing is expected.
    pub fn unexpected_features(&self, expected: Option<u64>) -> Option<Mistake> {
        let shape = self.shape;
        let expected = expected.filter(|&expected| expected != shape.last())?;
        Some(Mistake::new(format!("expects {expected} input features, but the previous layer produces {shape}")))
    }

    /// Returns a mistake unless the value has `expected` channels. `None` if it has, or nothing is expected.
    pub fn unexpected_channels(&self, expected: Option<u64>) -> Option<Mistake> {
        let (shape, channels) = (self.shape, self.shape.dims().first().copied().unwrap_or(1));
        let expected = expected.filter(|&expected| expected != channels)?;
        Some(Mistake::new(format!(
            "expects {expected} input channels, but the previous layer produces {shape}, which has {channels}"
        )))
    }
}
