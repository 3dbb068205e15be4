//! The mapping between a network's tensors and those of a file, declared once for reading and writing.

use crate::names::{captures, filled, matches_any, renamed};

/// The element type in which numbers are saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dtype {
    /// 4 bytes, exact: parameters of 16 bits and master copies are both saved without loss.
    #[default]
    F32,
    /// 2 bytes, binary16.
    F16,
    /// 2 bytes, bfloat16.
    Bf16,
}

/// The mapping between a network's tensors and those of a file: their names and layouts. It serves both reading and writing.
///
/// Names are those of the file, unless said otherwise. In a pattern each `*` stands for any characters: `h.*.attn.c_attn.weight`.
///
/// ```
/// use gpumem_weights::Mapping;
///
/// // The encoder of another model, whose attentions have queries, keys and values apart, without the file's head.
/// let encoder = Mapping::new()
///     .rename("model.encoder.", "")
///     .join("layers.*.qkv.*", &["model.encoder.layers.*.q.*", "model.encoder.layers.*.k.*", "model.encoder.layers.*.v.*"])
///     .skip("head.*");
/// # let _ = encoder;
/// ```
#[derive(Clone, Debug)]
pub struct Mapping {
    renames: Vec<(String, String)>,
    transposed: Vec<String>,
    axes: Vec<(String, usize)>,
    pub(crate) tied: Vec<(String, String)>,
    pub(crate) joined: Vec<Several>,
    pub(crate) split: Vec<Several>,
    skipped: Vec<String>,
    pub(crate) dtype: Dtype,
    /// The most bytes of each file if there are several.
    pub(crate) shard: u64,
}

/// A tensor on one side that is several tensors on the other.
#[derive(Clone, Debug)]
pub(crate) struct Several {
    pub(crate) whole: String,
    pub(crate) parts: Vec<String>,
    /// Rows of each part. `None` if all parts have equally many.
    pub(crate) rows: Option<Vec<u64>>,
}

impl Several {
    /// Returns the names of the parts of a whole; `None` if the rule does not match it.
    pub(crate) fn parts_of(&self, whole: &str) -> Option<Vec<String>> {
        let captured = captures(&self.whole, whole)?;
        Some(self.parts.iter().map(|part| filled(part, &captured)).collect())
    }

    /// Returns the number of a part and the name of its whole; `None` if the rule does not match it.
    pub(crate) fn whole_of(&self, part: &str) -> Option<(usize, String)> {
        let found =
            |(number, pattern): (usize, &String)| Some((number, filled(&self.whole, &captures(pattern, part)?)));
        self.parts.iter().enumerate().find_map(found)
    }
}

impl Default for Mapping {
    fn default() -> Mapping {
        Mapping::new()
    }
}

impl Mapping {
    /// Returns the mapping of a network whose names are PyTorch's: `layer1[0].conv1` is `layer1.0.conv1`.
    pub fn new() -> Mapping {
        Mapping {
            renames: Vec::new(),
            transposed: Vec::new(),
            axes: Vec::new(),
            tied: Vec::new(),
            joined: Vec::new(),
            split: Vec::new(),
            skipped: Vec::new(),
            dtype: Dtype::F32,
            shard: 5_000_000_000,
        }
    }

    /// Returns the mapping of transformers' GPT-2: `GPT2LMHeadModel`, `GPT2Model`, and the files on the hub.
    ///
    /// It is for networks with transformers' names below `transformer.` and layers `Linear(.., transposed)`, such as `Gpt2` of gpumem-zoo.
    /// Add `.transpose("*.c_*.weight")` for one with plain `Linear`s. Saved files have the names of `GPT2LMHeadModel`.
    pub fn gpt2() -> Mapping {
        // Older files have the causal mask, which is no parameter.
        let masks = Mapping::new().skip("h.*.attn.bias").skip("h.*.attn.masked_bias");
        masks.rename("transformer.", "").tied("lm_head.weight", "transformer.wte.weight")
    }

    /// Returns the mapping of vision transformers of timm and torchvision, whose tokens and positions have a batch axis of 1.
    ///
    /// It loads the files that [`Mapping::new`] loads, and saves `[1, 197, 384]` if the network has `[197, 384]`. It is for `VitS16`,
    /// `VitB16` and the DeiTs of gpumem-zoo, and for others with `cls_token`, `dist_token`, `pos_embed`, `class_token` or
    /// `encoder.pos_embedding`.
    pub fn vit() -> Mapping {
        let tables = ["cls_token", "dist_token", "pos_embed", "class_token", "encoder.pos_embedding"];
        tables.iter().fold(Mapping::new(), |mapping, table| mapping.axes(table, 3))
    }

    /// Changes the file's names: a prefix, or whole names if `from` has a `*`. Each rule applies to the result of the one before.
    #[must_use]
    pub fn rename(mut self, from: &str, to: &str) -> Mapping {
        self.renames.push((from.into(), to.into()));
        self
    }

    /// Declares that the file has these matrices transposed, `[in, out]`, like Conv1D of transformers. Nothing is transposed because of its
    /// shape alone.
    #[must_use]
    pub fn transpose(mut self, pattern: &str) -> Mapping {
        self.transposed.push(pattern.into());
        self
    }

    /// Declares that these tensors of the file have so many axes, the first ones of size 1: `axes("cls_token", 3)` is `[1, 1, 384]`.
    /// Reading needs no such rule.
    #[must_use]
    pub fn axes(mut self, pattern: &str, axes: usize) -> Mapping {
        self.axes.push((pattern.into(), axes));
        self
    }

    /// Declares that the file may have a tensor under a second name. When reading, both must be equal, and one may be missing; when
    /// writing, the tensor is written twice.
    #[must_use]
    pub fn tied(mut self, second: &str, first: &str) -> Mapping {
        self.tied.push((second.into(), first.into()));
        self
    }

    /// Declares that a tensor of the network is several in the file, with equally many rows:
    /// `join("*.qkv.*", &["*.q.*", "*.k.*", "*.v.*"])`.
    #[must_use]
    pub fn join(mut self, network: &str, file: &[&str]) -> Mapping {
        self.joined.push(several(network, file, None));
        self
    }

    /// Declares that a tensor of the network is several in the file, as [`Mapping::join`] does, with so many rows each:
    /// `[("*.q.*", 64), ("*.k.*", 16), ("*.v.*", 16)]`.
    #[must_use]
    pub fn join_rows(mut self, network: &str, file: &[(&str, u64)]) -> Mapping {
        let (names, rows): (Vec<&str>, Vec<u64>) = file.iter().copied().unzip();
        self.joined.push(several(network, &names, Some(rows)));
        self
    }

    /// Declares that several tensors of the network are one in the file, with their rows after each other:
    /// `split("*.c_attn.*", &["*.q.*", "*.k.*", "*.v.*"])`.
    #[must_use]
    pub fn split(mut self, file: &str, network: &[&str]) -> Mapping {
        self.split.push(several(file, network, None));
        self
    }

    /// Ignores tensors on both sides: the network's are not changed, and the file's are not read. `.skip("fc.*")` keeps a new head.
    #[must_use]
    pub fn skip(mut self, pattern: &str) -> Mapping {
        self.skipped.push(pattern.into());
        self
    }

    /// Saves numbers in this type; the default is f32. Reading accepts any type for each tensor.
    #[must_use]
    pub fn dtype(mut self, dtype: Dtype) -> Mapping {
        self.dtype = dtype;
        self
    }

    /// Limits the bytes of each file if the path is that of an index, `model.safetensors.index.json`; the default is 5 GB.
    #[must_use]
    pub fn shard(mut self, bytes: u64) -> Mapping {
        self.shard = bytes;
        self
    }

    /// Returns the network's name for a tensor of the file.
    pub(crate) fn read_name(&self, name: &str) -> String {
        let rename = |name: String, (from, to): &(String, String)| renamed(&name, from, to).unwrap_or(name);
        self.renames.iter().fold(name.into(), rename)
    }

    /// Returns the file's name for a tensor of the network: renamings are applied backwards.
    pub(crate) fn written_name(&self, name: &str) -> String {
        let rename = |name: String, (from, to): &(String, String)| renamed(&name, to, from).unwrap_or(name);
        self.renames.iter().rev().fold(name.into(), rename)
    }

    /// True if a tensor is left out, by either of its names.
    pub(crate) fn skips(&self, name: &str, other: &str) -> bool {
        matches_any(&self.skipped, name) || matches_any(&self.skipped, other)
    }

    pub(crate) fn transposes(&self, name: &str) -> bool {
        matches_any(&self.transposed, name)
    }

    /// Returns the least number of axes that a tensor has in the file.
    #[cfg(feature = "safetensors")]
    pub(crate) fn least_axes(&self, name: &str) -> usize {
        let found = self.axes.iter().find(|(pattern, _)| captures(pattern, name).is_some());
        found.map_or(0, |(_, axes)| *axes)
    }

    /// Returns a message for each `transpose` that matches no name of the file: a matrix would silently not be transposed.
    pub(crate) fn idle<'n>(&self, names: impl Iterator<Item = &'n str> + Clone) -> Vec<String> {
        let is_idle = |pattern: &&String| !names.clone().any(|name| captures(pattern, name).is_some());
        let idle = self.transposed.iter().filter(is_idle);
        idle.map(|pattern| {
            format!("`.transpose(\"{pattern}\")` is of no tensor; write the file's name, before it is renamed")
        })
        .collect()
    }
}

fn several(whole: &str, parts: &[&str], rows: Option<Vec<u64>>) -> Several {
    Several { whole: whole.into(), parts: parts.iter().map(|part| (*part).into()).collect(), rows }
}
