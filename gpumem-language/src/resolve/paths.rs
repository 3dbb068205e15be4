//! Paths of layers: `stage[0].conv2d[1]`.
//!
//! A segment gets its number among the equal names of its block instance, and no number if it is the only one. That is known only after the whole
//! instance has been resolved, so paths are spelled at the end.

use crate::syntax::Place;
use std::collections::HashMap;

/// The name of a block that has only a number in paths, as a module of an `nn.Sequential` has: `layer1[0]`.
pub(super) const INDEX: &str = "[]";

/// A segment of a path: its instance, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    instance: usize,
    index: usize,
}

/// The contents of a block call, or of `forward`.
#[derive(Debug, Default)]
struct Instance {
    /// The segment whose contents this is. `None` for `forward`.
    parent: Option<Segment>,
    /// For each segment, its name, its number among equal names, and the place at which the user chose the name, if so.
    segments: Vec<(String, usize, Option<Place>)>,
    counts: HashMap<String, usize>,
}

#[derive(Debug)]
pub(super) struct Paths {
    instances: Vec<Instance>,
    /// The instance that layers are being added to.
    current: usize,
}

impl Paths {
    pub(super) fn new() -> Paths {
        Paths { instances: vec![Instance::default()], current: 0 }
    }

    /// Adds a segment. `chosen` is the place at which the user chose the name, if so.
    pub(super) fn add(&mut self, name: &str, chosen: Option<Place>) -> Segment {
        let name = name.trim_start_matches("r#");
        let instance = &mut self.instances[self.current];
        let count = instance.counts.entry(name.to_string()).or_insert(0);
        instance.segments.push((name.to_string(), *count, chosen));
        *count += 1;
        Segment { instance: self.current, index: instance.segments.len() - 1 }
    }

    /// Adds a segment with a chosen name for a layer that shares the parameters of another one.
    ///
    /// If the instance has that name already, the new segment gets a number, and the older one keeps the name without one.
    pub(super) fn add_again(&mut self, name: &str, chosen: Place) -> Segment {
        let instance = &mut self.instances[self.current];
        let number = instance.segments.iter().filter(|(other, ..)| other == name).count();
        if number == 0 {
            return self.add(name, Some(chosen));
        }
        instance.segments.push((name.to_string(), number, None));
        Segment { instance: self.current, index: instance.segments.len() - 1 }
    }

    /// Opens an instance named `name`, and returns the argument for [`Paths::close`]. Without a name, layers are added to the current instance.
    pub(super) fn open(&mut self, name: &str) -> usize {
        self.open_at(name, |paths| paths.add(name, None))
    }

    /// Opens an instance with a chosen name for a block that shares the parameters of another call, as [`Paths::add_again`] adds a layer.
    pub(super) fn open_again(&mut self, name: &str, chosen: Place) -> usize {
        self.open_at(name, |paths| paths.add_again(name, chosen))
    }

    fn open_at(&mut self, name: &str, add: impl FnOnce(&mut Paths) -> Segment) -> usize {
        if name.is_empty() {
            return self.current;
        }
        let parent = Some(add(self));
        self.instances.push(Instance { parent, ..Instance::default() });
        std::mem::replace(&mut self.current, self.instances.len() - 1)
    }

    pub(super) fn close(&mut self, opened: usize) {
        self.current = opened;
    }

    pub(super) fn spell(&self, segment: Segment) -> String {
        let instance = &self.instances[segment.instance];
        let (name, number, _) = &instance.segments[segment.index];
        let mut path = instance.parent.map(|parent| self.spell(parent)).unwrap_or_default();
        let is_index = name == INDEX;
        if !is_index && !name.is_empty() {
            path += if path.is_empty() { "" } else { "." };
            path += name;
        }
        if is_index || instance.counts[name] > 1 || *number > 0 {
            path += &format!("[{number}]");
        }
        path
    }

    /// Returns names that users chose although another layer of the instance has them.
    pub(super) fn taken(&self) -> impl Iterator<Item = (&str, Place)> {
        self.instances.iter().flat_map(|instance| {
            let taken = |(name, number, chosen): &(String, usize, Option<Place>)| {
                let alone = instance.counts[name] == 1;
                // If all of them were chosen, the first one may keep the name.
                let first_of_chosen = *number == 0
                    && instance.segments.iter().all(|(other, _, chosen)| other != name || chosen.is_some());
                chosen.filter(|_| !alone && !first_of_chosen)
            };
            instance.segments.iter().filter_map(move |segment| Some((segment.0.as_str(), taken(segment)?)))
        })
    }
}

/// Returns the segment of a layer: `batch_norm2d` for `BatchNorm2d`.
pub(super) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
