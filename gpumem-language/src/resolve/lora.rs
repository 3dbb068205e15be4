//! Resolves `lora(rank, alpha, x)`: layers that are frozen and get low-rank adapters.

use super::Resolver;
use super::frame::{Current, Frame, Known};
use crate::syntax::{Argument, Expression, Place};
use gpumem_core::graph::{Lora, NodeId};
use gpumem_core::number::Coding;
use gpumem_core::suggest::nearest;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The message about wrong arguments.
const TAKES: &str = "`lora` takes a rank, an alpha and one element, as `lora(8, 16.0, [Linear(64), Relu])` or `lora(8, 16.0, \
                     backbone(50), targets = \"q_proj, v_proj\")`";

/// A `lora` whose layers are resolved.
pub(super) struct Adapted<'s> {
    lora: Lora,
    /// The expression to underline if the `lora` has no effect. The next field is the one if its `base` has none.
    at: (usize, Place),
    base_at: (usize, Place),
    frame: Rc<Frame<'s>>,
}

/// The arguments of a `lora`, before they are evaluated.
#[derive(Default)]
struct Written<'s> {
    rank: Option<&'s Expression>,
    alpha: Option<&'s Expression>,
    inner: Option<&'s Expression>,
    targets: Option<&'s Argument>,
    base: Option<&'s Argument>,
}

impl<'s> Resolver<'s, '_> {
    pub(super) fn lora(
        &mut self,
        element: &'s Expression,
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let Some(written) = self.lora_arguments(element, arguments, frame) else {
            let inner = arguments.iter().rfind(|argument| argument.name.is_none() && is_inside(&argument.value));
            return inner.and_then(|inner| self.element(&inner.value, frame, current, segment));
        };
        let (rank, alpha) = (self.rank(written.rank, frame), self.alpha(written.alpha, frame));
        let targets = written.targets.map_or(Some(Vec::new()), |targets| self.targets(targets, frame));
        let base = written.base.map_or(Some(None), |base| self.base(base, frame).map(Some));
        if self.is_adapted {
            let message = "`lora` stands inside another `lora`, but a linear map has one adapter; remove one of them";
            self.report(element.id, element.place, frame, message);
        }
        let first = self.graph.rows.len();
        let around = std::mem::replace(&mut self.is_adapted, true);
        let end = written.inner.and_then(|inner| self.element(inner, frame, current, segment));
        self.is_adapted = around;
        if let (Some(rank), Some(alpha), Some(targets), Some(base), false) = (rank, alpha, targets, base, around) {
            let rows = first..self.graph.rows.len();
            let at = |argument: Option<&Argument>| {
                argument.map_or((element.id, element.place), |argument| (argument.value.id, argument.value.place))
            };
            let (at, base_at) = (at(written.targets), at(written.base));
            let lora = Lora { rank, alpha, targets, base, rows };
            self.adapted.push(Adapted { lora, at, base_at, frame: frame.clone() });
        }
        end
    }

    /// Assigns arguments to parameters. `None` after a mistake, which has been reported.
    fn lora_arguments(
        &mut self,
        element: &Expression,
        arguments: &'s [Argument],
        frame: &Frame<'s>,
    ) -> Option<Written<'s>> {
        let mut written = Written::default();
        for argument in arguments {
            let value = Some(&argument.value);
            let name = argument.name.as_ref().map(ToString::to_string);
            let place = match name.as_deref() {
                Some("rank") => &mut written.rank,
                Some("alpha") => &mut written.alpha,
                Some("targets") if written.targets.is_none() => {
                    written.targets = Some(argument);
                    continue;
                }
                Some("base") if written.base.is_none() => {
                    written.base = Some(argument);
                    continue;
                }
                Some(other) => {
                    let options = ["rank", "alpha", "targets", "base"];
                    let hint = match nearest(other, &options) {
                        Some(near) if near != other => format!("did you mean `{near}`?"),
                        Some(_) => "it is given twice".to_string(),
                        None => "there are `rank`, `alpha`, `targets` and `base`".to_string(),
                    };
                    let message = format!("`lora` has no option `{other}`; {hint}");
                    self.report(argument.value.id, argument.place(), frame, &message);
                    return None;
                }
                None if is_inside(&argument.value) && (written.rank.is_some() || arguments.len() == 1) => {
                    &mut written.inner
                }
                None if written.rank.is_none() => &mut written.rank,
                None if written.alpha.is_none() => &mut written.alpha,
                None => &mut written.inner,
            };
            if place.is_some() {
                self.report(element.id, element.place, frame, TAKES);
                return None;
            }
            *place = value;
        }
        if written.rank.is_none() || written.alpha.is_none() || written.inner.is_none() {
            self.report(element.id, element.place, frame, TAKES);
            return None;
        }
        Some(written)
    }

    fn rank(&mut self, written: Option<&'s Expression>, frame: &Rc<Frame<'s>>) -> Option<u64> {
        let written = written?;
        match self.integer(written, frame)? {
            rank @ 1..=MOST_RANK => Some(rank),
            rank => {
                let message = format!("the rank of an adapter is 1 to {MOST_RANK}, not {rank}; 8 is usual");
                self.report(written.id, written.place, frame, &message);
                None
            }
        }
    }

    fn alpha(&mut self, written: Option<&'s Expression>, frame: &Rc<Frame<'s>>) -> Option<f64> {
        let written = written?;
        let alpha = match self.value(written, frame)? {
            Known::Open => return None,
            known => match known.number() {
                Some(alpha) => alpha,
                None => {
                    let message = format!("the alpha of an adapter is a number, as 16.0, not {}", known.describe());
                    self.report(written.id, written.place, frame, &message);
                    return None;
                }
            },
        };
        if !(alpha > 0.0 && alpha <= f64::from(f32::MAX)) {
            let message = format!("the alpha of an adapter is above 0, not {alpha:?}; twice the rank is usual");
            self.report(written.id, written.place, frame, &message);
            return None;
        }
        Some(alpha)
    }

    /// Reads `base = Nf4`.
    fn base(&mut self, written: &'s Argument, frame: &Frame<'s>) -> Option<Coding> {
        let value = &written.value;
        let found = value.to_string();
        let name = found.trim_matches('"');
        let known = Coding::ALL.map(Coding::name);
        if let (crate::syntax::Kind::Name(_), Some(coding)) =
            (&value.kind, Coding::ALL.into_iter().find(|coding| coding.name() == found))
        {
            return Some(coding);
        }
        let hint = match nearest(name, &known) {
            Some(near) if near == name => format!("write `base = {near}`"),
            Some(near) => format!("did you mean `{near}`?"),
            None => "without `base` they are in the network's precision".to_string(),
        };
        let message = format!(
            "`base`, how weights that are not trained are kept, is `Int8`, `Nf4` or `Nf4Double`, not `{found}`; {hint}"
        );
        self.report(value.id, value.place, frame, &message);
        None
    }

    /// Reads `targets = "q_proj, v_proj"`.
    fn targets(&mut self, written: &'s Argument, frame: &Rc<Frame<'s>>) -> Option<Vec<String>> {
        let wanted = "names of linear maps with commas between them, as `targets = \"q_proj, v_proj\"`";
        let text = match self.lora_text(&written.value, frame)? {
            Known::Text(text) => text,
            Known::Open => return None,
            other => {
                let message = format!("`targets` are {wanted}, not {}", other.describe());
                self.report(written.value.id, written.place(), frame, &message);
                return None;
            }
        };
        let targets: Vec<String> = text.split(',').map(|target| target.trim().to_string()).collect();
        if targets.iter().any(String::is_empty) {
            let message = format!("a target is empty; `targets` are {wanted}");
            self.report(written.value.id, written.place(), frame, &message);
            return None;
        }
        Some(targets)
    }

    /// Evaluates `targets`. Reports a list, which is PEFT's form.
    fn lora_text(&mut self, value: &'s Expression, frame: &Rc<Frame<'s>>) -> Option<Known<'s>> {
        let crate::syntax::Kind::List(names) = &value.kind else { return self.value(value, frame) };
        let names: Vec<String> = names.iter().map(|name| name.to_string().trim_matches('"').to_string()).collect();
        let message = format!("`targets` are one text with commas; write `targets = \"{}\"`", names.join(", "));
        self.report(value.id, value.place, frame, &message);
        None
    }

    /// Adds the adapters to the graph, and updates the nodes in `taps` and `outputs`.
    ///
    /// Without `outputs` the network is not completely known, and nothing is checked.
    pub(super) fn adapt<'n>(&mut self, taps: impl Iterator<Item = &'n mut NodeId>, outputs: Option<&'n mut [NodeId]>) {
        if self.adapted.is_empty() {
            return;
        }
        let adapted = std::mem::take(&mut self.adapted);
        // After a mistake in a layer, some layers are not known.
        if outputs.is_some() {
            let bases = self.graph.bases();
            adapted.iter().for_each(|adapted| self.check_adapted(adapted, &bases));
        }
        let all: Vec<Lora> = adapted.into_iter().map(|adapted| adapted.lora).collect();
        let places = self.graph.adapt(&all);
        for node in taps.chain(outputs.into_iter().flatten()) {
            *node = places[*node];
        }
    }

    /// Checks the layers inside a `lora`. `bases` are the weights that may be stored in quantized form.
    fn check_adapted(&mut self, adapted: &Adapted<'s>, bases: &BTreeSet<usize>) {
        let Adapted { lora, at: (id, place), base_at, frame } = adapted;
        let known = self.graph.lora_targets(&lora.rows);
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        if self.graph.freezes_all_maps(&lora.rows) {
            let message = "all linear maps in this `lora` are inside of `freeze`, where no adapter is trained; remove `freeze`: \
                           `lora` freezes what it is around";
            return self.report(*id, *place, frame, message);
        }
        if known.is_empty() {
            let message =
                "`lora` has no linear map inside that could have an adapter; put it around a `Linear` or an attention";
            return self.report(*id, *place, frame, message);
        }
        if lora.base.is_some() && !self.graph.has_base(&lora.rows, bases) {
            let message = "`base` is for weights that only linear maps read, and here each is shared with another use; leave `base` out";
            self.report(base_at.0, base_at.1, frame, message);
        }
        for unmet in self.graph.unmet_targets(lora) {
            let hint = match nearest(unmet, &known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
                    format!("there are {}", known.join(", "))
                }
            };
            let message = format!("no linear map in this `lora` is called `{unmet}`; {hint}");
            self.report(*id, *place, frame, &message);
        }
    }
}

/// The highest rank that is accepted.
const MOST_RANK: u64 = 1 << 16;

/// True if an argument is the element, rather than a number.
fn is_inside(value: &Expression) -> bool {
    use crate::syntax::Kind;
    matches!(value.kind, Kind::Call { .. } | Kind::List(_) | Kind::Path { arguments: Some(_), .. } | Kind::If { .. })
}
