/// Parameters with numbers of their own: `groups: [Group { paths: "*.bias, *norm*", weight_decay: 0.0 }]`
/// among the hyperparameters of any optimizer.
///
/// `paths` are the names of parameters, as `names()` lists them, with `*` for any text. Numbers that a group leaves out are those of the
/// optimizer. A parameter in several groups takes each number from the last of them that has it, so that
/// `Group { paths: "head.*", lr: 1e-2 }` after the group above leaves the bias of the head without weight decay. Paths that match nothing
/// are errors.
///
/// `set_lr` sets the optimizer's rate, and changes those of groups in the same proportion; so does a schedule.
///
/// A group may also set `betas`, `eps` or `momentum`, if the optimizer's page says so at its field `groups`. It may set a `momentum` only if the
/// optimizer has one too.
///
/// `layer_decay` gives early layers smaller rates, as fine-tuning of vision transformers does: with
/// `Group { paths: "patch_embed*, pos*, blocks[*].*", layer_decay: 0.75 }` a parameter's rate is multiplied with `0.75^(depth - layer)`.
/// Its `layer` is `1 + n`, where `n` is the number that the first `[*]` of its path stands for, and 0 if the path has no `[*]`. With `L` as
/// the largest such `n`, `depth` is `L + 2`: the layer of the last norm and the head, which no path names and whose rate is the
/// optimizer's. `network!` makes a group for each layer. If the same group has an `lr`, the factors multiply it; an `lr` in a later group
/// replaces both.
///
/// A group costs no memory. Parameters that differ in rate and weight decay alone are updated in the same launches.
///
/// PyTorch: `torch.optim.AdamW([{"params": biases, "weight_decay": 0.0}, {"params": others}], lr)`; for `layer_decay`
/// `timm.optim.param_groups_layer_decay(model, layer_decay=0.75)`, which has these layers, except that it counts the last norm to the last
/// block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Names of parameters, separated by commas, with `*` for any text.
    pub paths: &'static str,
    /// The factor of the optimizer's learning rate. `network!` takes the rate itself, as `lr: 1e-2`, and divides. `None` for the
    /// optimizer's rate.
    pub lr_factor: Option<f64>,
    /// The weight decay. `None` for the optimizer's.
    pub weight_decay: Option<f64>,
    /// The `betas`. `None` for the optimizer's.
    pub betas: Option<(f64, f64)>,
    /// The `eps`. `None` for the optimizer's.
    pub eps: Option<f64>,
    /// The `momentum`. `None` for the optimizer's.
    pub momentum: Option<f64>,
}

impl Group {
    /// A group that changes nothing.
    pub const DEFAULT: Group =
        Group { paths: "", lr_factor: None, weight_decay: None, betas: None, eps: None, momentum: None };

    /// Returns the paths, one by one.
    pub fn patterns(&self) -> impl Iterator<Item = &'static str> {
        self.paths.split(',').map(str::trim)
    }

    /// True if a parameter of this name is in the group.
    pub fn holds(&self, parameter: &str) -> bool {
        self.patterns().any(|pattern| matches(pattern, parameter))
    }

    /// Returns the mistake in its numbers. `None` if there is none.
    pub(super) const fn mistake(&self) -> Option<&'static str> {
        match self.lr_factor {
            Some(factor) if !(factor >= 0.0 && factor <= f32::MAX as f64) => {
                return Some(
                    "a group's `lr` is kept as a multiple of the optimizer's `lr`: both must be 0 or more and finite, and the optimizer's more than 0",
                );
            }
            _ => {}
        }
        match self.weight_decay {
            Some(decay) if !(decay >= 0.0 && decay <= f64::MAX) => {
                return Some("`weight_decay` of a group must be 0 or more and finite");
            }
            _ => {}
        }
        match self.betas {
            Some((first, second)) if !(first >= 0.0 && first < 1.0 && second >= 0.0 && second < 1.0) => {
                return Some("`betas` of a group must be at least 0 and below 1");
            }
            _ => {}
        }
        match self.eps {
            Some(eps) if !(eps >= 0.0 && eps <= f64::MAX) => {
                return Some("`eps` of a group must be 0 or more and finite");
            }
            _ => {}
        }
        match self.momentum {
            // Numbers that are 0 decide which states exist.
            Some(momentum) if !(momentum > 0.0 && momentum <= f64::MAX) => {
                Some("`momentum` of a group must be above 0 and finite")
            }
            _ => None,
        }
    }

    /// True if it sets numbers of the rule itself, other than rate and weight decay.
    pub const fn changes_rule(&self) -> bool {
        self.betas.is_some() || self.eps.is_some() || self.momentum.is_some()
    }
}

/// True if `name` matches a pattern in which `*` stands for any text.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return name.ends_with(piece);
        }
        match name.find(piece) {
            Some(at) => name = &name[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, name, expected) in [
            ("head.weight", "head.weight", true),
            ("head.weight", "head.weights", false),
            ("head.*", "head.weight", true),
            ("head.*", "ahead.weight", false),
            ("*.bias", "stage[0].conv2d[1].bias", true),
            ("*.bias", "bias", false),
            ("*norm*", "stage[0].layer_norm[1].weight", true),
            ("*norm*", "stage[0].conv2d.weight", false),
            ("stage[0]*.weight", "stage[0].conv2d[1].weight", true),
            ("stage[0]*.weight", "stage[1].conv2d[1].weight", false),
            ("*", "anything", true),
            ("**", "", true),
            ("a*a", "a", false),
            ("a*b*a", "abba", true),
            ("a*bb*ba", "abba", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn groups_hold_what_any_of_their_paths_matches() {
        let group = Group { paths: "*.bias, *norm*", ..Group::DEFAULT };
        assert!(group.holds("conv2d.bias") && group.holds("layer_norm.weight"));
        assert!(!group.holds("conv2d.weight"));
    }
}
