//! The rows of a comparison, as a table for a terminal and in Markdown for a comment.

use super::Change;
use crate::plan::PlannedProgram;
use crate::text::{bytes, difference, table as columns, time};
use gpumem_core::cards::Card;
use gpumem_core::memory::budget::{Budget, Line};
use gpumem_core::report::Device;

/// A program with its budget.
type Side<'s> = (&'s PlannedProgram, &'s Budget);

/// A figure before and after: its name, both texts, and the difference.
type Row = [String; 4];

/// Returns each card of a program with the bytes that are left of it; negative if it is over.
pub fn on_cards((step, budget): Side<'_>) -> impl Iterator<Item = (&'static Card, i128)> {
    step.plan.cards.iter().map(move |card| {
        let device = Device::Known(card);
        let needs = step.total(*budget, device).saturating_add(step.plan.headroom);
        (*card, i128::from(device.usable()) - i128::from(needs))
    })
}

/// Returns the least milliseconds of a step's operations on a card. `None` for a card without rates.
pub fn least_time(step: &PlannedProgram, card: &'static Card) -> Option<f64> {
    let adviser = step.plan.adviser(&[card], Some(Device::Known(card)), step.plan.headroom);
    Some(adviser.spent().ok()?.iter().map(|spent| spent.ms).sum())
}

/// Returns the rows of a program on both sides: its arena, and all else that differs.
fn rows(before: Side<'_>, after: Side<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let row = |name: &str, [old, new]: [String; 2], change: String| [name.into(), old, new, change];
    for line in [Line::Arena].into_iter().chain(Line::parts()) {
        let [old, new] = [before, after].map(|(_, budget)| budget[line]);
        if old != new || line == Line::Arena {
            rows.push(row(line.name(), [old, new].map(bytes), difference(old, new)));
        }
    }
    rows.extend(cards(before, after));
    let counts = [before, after].map(|(step, _)| [step.plan.batch, step.plan.parameters(), step.plan.macs()]);
    for (index, name) in ["batch", "parameters", "MACs"].into_iter().enumerate() {
        let [old, new] = [counts[0][index], counts[1][index]];
        if old != new {
            let change = i128::from(new) - i128::from(old);
            rows.push(row(name, [old.to_string(), new.to_string()], format!("{change:+}")));
        }
    }
    let precisions = [before, after].map(|(step, _)| step.plan.precision.name().to_string());
    if precisions[0] != precisions[1] {
        rows.push(row("precision", precisions, String::new()));
    }
    rows
}

/// Returns a row for each card that the program fits on one side only, and one for the least time on the first card if that differs.
fn cards(before: Side<'_>, after: Side<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let verdict = |left: i128| match u64::try_from(left) {
        Ok(left) => format!("{} left", bytes(left)),
        Err(_) => format!("over by {}", bytes(u64::try_from(-left).unwrap_or(u64::MAX))),
    };
    for (card, new) in on_cards(after) {
        let Some((_, old)) = on_cards(before).find(|(other, _)| other.slug == card.slug) else { continue };
        if (old >= 0) != (new >= 0) {
            let change = if new >= 0 { "fits now" } else { "no longer fits" };
            rows.push([format!("on {}", card.short_name), verdict(old), verdict(new), change.into()]);
        }
    }
    if let Some(card) = after.0.plan.cards.first().copied()
        && let (Some(old), Some(new)) = (least_time(before.0, card), least_time(after.0, card))
    {
        let change = 100.0 * (new / old.max(f64::MIN_POSITIVE) - 1.0);
        if change.abs() >= 0.05 {
            rows.push([format!("least time, {}", card.short_name), time(old), time(new), format!("{change:+.1} %")]);
        }
    }
    rows
}

/// Returns the rows of a change, of which one side may be missing.
fn of_change(change: &Change) -> Vec<Row> {
    let side = |side: &Option<(PlannedProgram, Budget)>| side.as_ref().map(|(_, budget)| bytes(budget[Line::Arena]));
    match (&change.before, &change.after) {
        (Some(before), Some(after)) => rows((&before.0, &before.1), (&after.0, &after.1)),
        (before, after) => {
            let word = if before.is_none() { "new" } else { "gone" };
            vec![["arena".into(), side(before).unwrap_or_default(), side(after).unwrap_or_default(), word.into()]]
        }
    }
}

/// Returns all changes as a table.
pub fn table(changes: &[Change], revision: &str) -> String {
    let mut rows = vec![["network", "", revision, "now", "change"].map(String::from)];
    for change in changes {
        let mut title = change.label.clone();
        for [name, before, after, difference] in of_change(change) {
            rows.push([std::mem::take(&mut title), name, before, after, difference]);
        }
    }
    columns(&rows, &[2, 3, 4])
}

/// Returns the changes as a comment on a pull request: a table of the programs that differ, and the names of the others.
pub fn markdown(changes: &[Change], revision: &str) -> String {
    let (mut body, mut equal) = (String::new(), Vec::new());
    for change in changes {
        let rows = of_change(change);
        if let [[_, _, _, difference]] = rows.as_slice()
            && difference == "="
        {
            equal.push(escaped(&change.label));
            continue;
        }
        let mut title = format!("**{}**", escaped(&change.label));
        for row in rows {
            let [name, before, after, difference] = row.map(|cell| escaped(&cell));
            body += &format!("| {} | {name} | {before} | {after} | {difference} |\n", std::mem::take(&mut title));
        }
    }
    let revision = escaped(revision);
    let mut text = format!("### Memory beside `{revision}`\n\n");
    if !body.is_empty() {
        text += &format!("| network | | {revision} | now | change |\n| --- | --- | ---: | ---: | ---: |\n{body}");
    }
    if !equal.is_empty() {
        let gap = if body.is_empty() { "" } else { "\n" };
        text += &format!("{gap}Without a change: {}\n", equal.join(", "));
    }
    text
}

/// Escapes a text for a cell of a table. `<` of a generic network would begin a tag.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;
    use crate::options::Settings;
    use crate::plan::steps;
    use gpumem_language::source::{Overrides, declared};

    /// The training step of a network with this batch and this many hidden features, which names a T4.
    fn side(batch: u64, hidden: u64) -> (PlannedProgram, Budget) {
        let text = format!(
            "use gpumem::prelude::*;\n\nnetwork! {{\n    pub struct Net;\n\n    const TRAIN: Train = Train {{ batch: {batch}, \
             optimizer: AdamW {{}}, loss: Mse, cards: [T4] }};\n\n    fn forward(x: Features<64>) -> Features<8> {{\n        \
             [Linear({hidden}), Gelu, Linear(8)]\n    }}\n}}\n"
        );
        let declared = declared(&text, &Overrides::default()).unwrap_or_else(|_| panic!("{text}"));
        let step = steps(&files::network("src/net.rs", declared), &Settings::default()).unwrap().remove(0);
        let budget = step.written().unwrap();
        (step, budget)
    }

    fn change(title: &str, before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> Change {
        let side = |of: Option<(u64, u64)>| of.map(|(batch, hidden)| side(batch, hidden));
        Change { title: title.into(), label: title.into(), package: None, before: side(before), after: side(after) }
    }

    #[test]
    fn a_comment_has_what_differs_and_names_the_rest() {
        let changes = [
            change("Wider", Some((4, 1024)), Some((4, 4096))),
            change("Net<64>", Some((4, 64)), Some((4, 64))),
            change("Equal", Some((4, 64)), Some((4, 64))),
            change("Old|er", Some((4, 64)), None),
        ];
        let text = markdown(&changes, "main");
        assert!(
            text.starts_with("### Memory beside `main`\n\n| network | | main | now | change |\n| --- | --- | ---: |"),
            "{text}"
        );
        assert!(text.ends_with("\n\nWithout a change: Net&lt;64>, Equal\n"), "{text}");
        assert!(text.contains("\n| **Old\\|er** | arena | ") && text.contains(" |  | gone |\n"), "{text}");
        for part in [
            "| **Wider** | arena |",
            "\n|  | weights |",
            "\n|  | optimizer |",
            "\n|  | least time, T4 |",
            "\n|  | parameters |",
            "\n|  | MACs |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("on T4"), "it fits before and after: {text}");
        assert_eq!(markdown(&changes[1..2], "main"), "### Memory beside `main`\n\nWithout a change: Net&lt;64>\n");
    }

    #[test]
    fn a_card_that_no_longer_fits_has_a_row() {
        let large = change("Net", Some((4, 64)), Some((1 << 24, 64)));
        let text = table(std::slice::from_ref(&large), "main");
        let row = text.lines().find(|line| line.contains("on T4")).unwrap_or_else(|| panic!("{text}"));
        assert!(row.contains(" left ") && row.contains("over by ") && row.ends_with("no longer fits"), "{row}");
        let back = change("Net", Some((1 << 24, 64)), Some((4, 64)));
        assert!(table(&[back], "main").contains("  fits now\n"));
    }
}
