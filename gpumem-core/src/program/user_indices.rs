//! The limits of the user's indices that an operation of a program reads, as they are or in a view.

use super::indices::Indices;
use super::op::Op;
use super::ops::AsStrided;
use super::{Action, Class, Operation, Pass, Program, Slot};
use alloc::vec;
use alloc::vec::Vec;

/// Most places of a sample that are listed. Of a view of more, all that it is taken from are looked at.
const MOST_PLACES: u64 = 1 << 28;

impl Indices {
    /// Returns the rule for indices of which `view` reads those that this one is about. `None` if it is not about all that the view has.
    fn before(self, view: &AsStrided, slot: Slot) -> Option<Indices> {
        let each = view.input.elements()?;
        if view.output.elements() != Some(self.each) {
            return None;
        }
        let read = if self.ordered { view.clone() } else { view.distinct() };
        let mut places: Vec<u64> = match (&self.places, read.output.elements()?) {
            (Some(places), _) => places.iter().map(|&place| view.place(place)).collect(),
            (None, count) if count <= MOST_PLACES => (0..count).map(|element| read.place(element)).collect(),
            // All of them may be read.
            _ => return Some(Indices { slot, each, ..self }),
        };
        if !self.ordered {
            places.sort_unstable();
            places.dedup();
        }
        let is_all = (0..each).eq(places.iter().copied());
        Some(Indices { slot, each, places: (!is_all).then(|| places.into()), ..self })
    }
}

impl Operation {
    /// Returns the rules for the user's indices by which it looks something up.
    ///
    /// Indices that another operation computes have no rule: they are right, and not there yet when a step begins. If [`AsStrided`] takes
    /// some of the user's indices, the operation that reads these gives the rule.
    pub fn indices(&self, program: &Program) -> Vec<Indices> {
        let is_given = |indices: &Indices| {
            let tensor = self.read(indices.slot).and_then(|id| program.tensors.get(id as usize));
            tensor.is_some_and(|tensor| matches!(tensor.class, Class::Input | Class::Target))
        };
        match self.view() {
            Some(view) => {
                let slot = Slot::Input(0);
                let is_read = is_given(&Indices::below(u64::MAX, "index", slot, 0));
                let own = program.operations.iter().position(|operation| operation == self);
                let mut seen = vec![false; program.operations.len()];
                let rules = |own: usize| self.rules_of_readers(view, program, own + 1, &mut seen);
                own.filter(|_| is_read).map_or_else(Vec::new, rules)
            }
            None => self.own_indices().into_iter().filter(is_given).collect(),
        }
    }

    /// Returns what the operation itself says of what it looks something up by, whoever made that.
    fn own_indices(&self) -> Vec<Indices> {
        match &self.action {
            Action::Run { op, pass: Pass::Forward } => op.indices(),
            Action::Loss(criterion) => criterion.indices(),
            _ => Vec::new(),
        }
    }

    /// Returns the indices that it takes from others, if it does that alone.
    fn view(&self) -> Option<&AsStrided> {
        match &self.action {
            Action::Run { op: Op::AsStrided(view), pass: Pass::Forward } if view.is_sound() => Some(view),
            _ => None,
        }
    }

    /// Returns what all that read the indices of a view say of them, as rules for the indices that it takes them from. Operations from number
    /// `next` on may read them. Views that were `seen` have been followed: in a damaged program several may make one tensor.
    fn rules_of_readers(&self, view: &AsStrided, program: &Program, next: usize, seen: &mut [bool]) -> Vec<Indices> {
        let Some(output) = self.written(Slot::Output) else { return Vec::new() };
        let mut rules = Vec::new();
        for (number, reader) in program.operations.iter().enumerate().skip(next) {
            if !reader.reads.iter().any(|operand| operand.tensor == output) {
                continue;
            }
            match reader.view() {
                Some(view) if !core::mem::replace(&mut seen[number], true) => {
                    rules.extend(reader.rules_of_readers(view, program, number + 1, seen));
                }
                Some(_) => {}
                None => {
                    let own = reader.own_indices().into_iter();
                    rules.extend(own.filter(|rule| reader.read(rule.slot) == Some(output)));
                }
            }
        }
        rules.into_iter().filter_map(|rule| rule.before(view, Slot::Input(0))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::shape::Shape;

    /// The last two of three tokens in another order, in two samples.
    #[test]
    fn only_what_a_view_reads_is_looked_at() {
        let view = AsStrided { input: Shape::new(&[3]), output: Shape::new(&[2]), start: 1, strides: [1].to_vec() };
        let rule = Indices::below(5, "token", Slot::Input(1), 2).before(&view, Slot::Input(0)).unwrap();
        assert_eq!((rule.slot, rule.each, rule.places.as_deref()), (Slot::Input(0), 3, Some(&[1, 2][..])));
        assert_eq!(rule.check([9, 4, 0, 9, 0, 4]), Ok(()));
        let wrong = Error::Index { what: "token", position: 4, value: 5, limit: 5 };
        assert_eq!(rule.check([9, 4, 0, 9, 5, 4]), Err(wrong));
        let all = AsStrided { output: Shape::new(&[2, 3]), start: 0, strides: [0, 1].to_vec(), ..view };
        assert_eq!(Indices::below(5, "token", Slot::Input(0), 6).before(&all, Slot::Input(0)).unwrap().places, None);
    }

    /// Rules and views of a damaged program take no memory, whatever number of indices they claim.
    #[test]
    fn damaged_views_are_not_listed() {
        let many = 1 << 40;
        let view = AsStrided::expanded(Shape::new(&[3]), Shape::new(&[many, 3]));
        let rule = |each| Indices::below(5, "token", Slot::Input(0), each);
        assert_eq!(rule(many).before(&view, Slot::Input(0)), None);
        assert_eq!(rule(3 * many).before(&view, Slot::Input(0)), Some(rule(3)));
        let wide = AsStrided::part(Shape::new(&[many]), 0, [1, many - 1]);
        let all = rule(many - 1).before(&wide, Slot::Input(0)).unwrap();
        assert_eq!(all, rule(many));
        let one = AsStrided::part(Shape::new(&[many]), 0, [1, 1]);
        assert_eq!(rule(1).before(&one, Slot::Input(0)).unwrap().check([9, 9, 9]), Ok(()));
    }

    /// Those that may not fall are compared in the order of the view, and not from one sample to the next.
    #[test]
    fn the_order_of_a_view_counts() {
        let view = AsStrided::permuted(Shape::new(&[2, 2]), &[1, 0]);
        let rule = Indices::ordered("segment", Slot::Input(0), 4).before(&view, Slot::Input(0)).unwrap();
        assert_eq!(rule.check([0, 2, 1, 3, 0, 0, 0, 0]), Ok(()));
        let wrong = Error::Order { what: "segment", position: 5, value: 1, before: 2 };
        assert_eq!(rule.check([0, 0, 0, 0, 0, 1, 2, 3]), Err(wrong));
    }
}
