//! Collects the networks of each `fits!`: several that share a card, or one on cards that its constants do not name.

use crate::facts::Fits;
use crate::network::{LeftOut, Network};
use gpumem_core::cards::Card;

/// A `fits!` with cards or several networks.
pub struct Together {
    pub file: String,
    pub line: u64,
    /// The networks, in the order in which they are written.
    pub members: Vec<Network>,
    /// Cards that the `fits!` names, or those of Cargo features.
    pub cards: Vec<&'static Card>,
}

impl Together {
    /// Returns the names of the networks, as `Generator + Critic`.
    pub fn title(&self) -> String {
        let labels: Vec<&str> = self.members.iter().map(|member| member.label.as_str()).collect();
        labels.join(" + ")
    }

    /// Returns an entry for a `fits!` without an answer. `why` is the reason.
    pub fn left_out(&self, why: String) -> LeftOut {
        LeftOut {
            label: self.title(),
            name: self.title(),
            program: None,
            package: self.members.first().and_then(|member| member.package.clone()),
            file: self.file.clone(),
            line: self.line,
            why,
        }
    }
}

/// A network of a `fits!`: the file of its record, its position in the `fits!`, and the network.
pub type Member = (String, Fits, Network);

/// Groups networks by their `fits!`. Each network has its own record. Also returns the `fits!` that lack a network.
pub fn gathered(mut members: Vec<Member>) -> (Vec<Together>, Vec<LeftOut>) {
    let place = |(file, fits, _): &Member| (file.clone(), fits.place);
    members.sort_by(|a, b| (place(a), a.1.index, &a.2.name).cmp(&(place(b), b.1.index, &b.2.name)));
    // A file that belongs to two targets is compiled twice.
    members.dedup_by(|a, b| {
        place(a) == place(b) && a.1.index == b.1.index && a.2.name == b.2.name && a.2.declared == b.2.declared
    });
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for asked in members.chunk_by(|a, b| place(a) == place(b)) {
        let (file, fits, _) = &asked[0];
        let (line, cards) = (fits.place[0], fits.cards.clone());
        let networks = asked.iter().map(|(.., network)| network.clone()).collect();
        let together = Together { file: file.clone(), line, members: networks, cards };
        if asked.len() as u64 == fits.count {
            found.push(together);
        } else {
            let why = format!("{} networks of its `fits!` were found, and there are {}", asked.len(), fits.count);
            left_out.push(together.left_out(why));
        }
    }
    (found, left_out)
}
