//! Counts the answers near the limits of cards that may be wrong, for the tables of `docs/reference/exactness.md`.
//!
//! The arena of a plan is exact. The reserve and the usable memory of a card are figures with a spread: published sizes of contexts in
//! `gpumem-core/data/contexts.csv`, processes that were measured in `docs/lab/gpu-results.md`, and ranges of usable memory in the notes of
//! `gpumem-core/data/cards.csv`. An answer is asked again with the ends of each.
#![allow(missing_docs)]

mod pages;

use gpumem_core::cards::{ALL, Basis, Card, find};
use gpumem_core::lower::Blueprint;
use gpumem_core::memory::budget::Line;
use gpumem_core::number::Precision;
use gpumem_core::report::{Planned, Written};
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_language::source::{Overrides, Text};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::read_to_string;

const PAGE: &str = "../docs/reference/exactness.md";
const MIB: u64 = 1 << 20;

/// The driver gives memory in pages of this size.
const PAGE_BYTES: u64 = 2 * MIB;

/// Bytes of local memory a thread that loading a network gives back.
const GIVEN_BACK: u64 = 1024;

/// Returns the text of a file, by its path from the root of the repository.
fn text(path: &str) -> String {
    let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
    read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the cells of the rows of a table of a page, which follows this line of its head.
fn table(page: &str, head: &str) -> Vec<Vec<String>> {
    let text = text(page);
    let rows = text[text.find(head).unwrap()..].lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect();
    rows.map(cells).collect()
}

/// Returns a number of MiB in a table, such as `7,058` or `12,004 (1.64x)`.
fn mib(cell: &str) -> Option<f64> {
    cell.split(' ').next()?.replace(',', "").parse().ok()
}

/// A context that was published, in MiB.
struct Context {
    card: &'static Card,
    least: f64,
    most: f64,
}

impl Context {
    fn all() -> Vec<Context> {
        let csv = text("gpumem-core/data/contexts.csv");
        let context = |line: &str| {
            let mut cells = line.split(',');
            let mut next = || cells.next().unwrap();
            let card = find(next()).unwrap();
            Context { card, least: next().parse().unwrap(), most: next().parse().unwrap() }
        };
        csv.lines().skip(1).map(context).collect()
    }

    /// Returns the context of the rule, in MiB.
    fn rule(&self) -> f64 {
        self.card.context().unwrap() as f64 / MIB as f64
    }
}

/// A process that was measured on an H100, in MiB.
struct Process {
    network: String,
    arena: f64,
    measured: f64,
}

impl Process {
    fn all() -> Vec<Process> {
        let rows = table("docs/lab/gpu-results.md", "| network | arena | ours | `autotune` |");
        let processes = rows.iter().flat_map(|row| {
            [(2, ""), (3, ", `autotune`")].into_iter().filter_map(|(column, with)| {
                let (arena, measured) = (mib(&row[1])?, mib(&row[column])?);
                Some(Process { network: format!("{}{with}", row[0]), arena, measured })
            })
        });
        processes.collect()
    }

    fn besides(&self) -> f64 {
        self.measured - self.arena
    }
}

/// The memory that a process takes besides its arena, relative to the rule.
struct Spread {
    /// Contexts, as shares of the rule's.
    context: [f64; 2],
    /// Libraries, modules and graphs, in bytes.
    libraries: [f64; 2],
}

impl Spread {
    fn new() -> Spread {
        let shares =
            || Context::all().into_iter().map(|context| [context.least, context.most].map(|mib| mib / context.rule()));
        // A context of the measured processes, with the smallest limits.
        let rows = table("docs/lab/gpu-results.md", "| MiB | digits, batch 256 |");
        let context = rows.iter().find(|row| row[0] == "context").and_then(|row| mib(&row[1])).unwrap();
        let besides: Vec<f64> =
            Process::all().iter().map(|process| (process.besides() - context) * MIB as f64).collect();
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        Spread {
            context: [least(&mut shares().map(|[least, _]| least)), most(&mut shares().map(|[_, most]| most))],
            libraries: [least(&mut besides.iter().copied()), most(&mut besides.iter().copied())],
        }
    }

    /// Returns the least and the most bytes that a process on this card may take besides its arena.
    ///
    /// The least has given back the stacks of all threads, the most has not.
    fn reserve(&self, card: &Card) -> Option<[u64; 2]> {
        let context = card.context()? as f64;
        let threads = u64::from(card.multiprocessors?) * u64::from(card.threads_per_multiprocessor());
        let least = self.context[0] * context - (GIVEN_BACK * threads) as f64 + self.libraries[0];
        let most = self.context[1] * context + self.libraries[1] + PAGE_BYTES as f64;
        Some([least as u64, most as u64])
    }
}

/// A card with what an arena may have: by the rule, at least, and at most.
struct Room {
    card: &'static Card,
    rule: u64,
    least: u64,
    most: u64,
}

impl Room {
    /// The rooms of all cards whose usable memory was read on one.
    fn all() -> Vec<Room> {
        let spread = Spread::new();
        let read = ALL.iter().filter(|card| card.basis == Basis::Measured && !card.is_slice());
        read.filter_map(|card| Room::of(card, &spread)).collect()
    }

    fn of(card: &'static Card, spread: &Spread) -> Option<Room> {
        let [least, most] = spread.reserve(card)?;
        let (low, high) = usable_range(card);
        let figure = u64::from(card.usable_mib);
        // Cards that share memory with the host have less than their figure.
        let usable = card.usable();
        Some(Room {
            card,
            rule: usable - card.reserve(),
            least: (usable - (figure - low) * MIB).saturating_sub(most),
            most: usable + (high - figure) * MIB - least,
        })
    }

    /// Returns the bytes that a wrong "no" may leave unused.
    fn unused(&self) -> u64 {
        self.most.saturating_sub(self.rule)
    }
}

/// Returns the usable memory that was read on such cards, in MiB: the range in the notes, or the figure of the table.
fn usable_range(card: &Card) -> (u64, u64) {
    let figure = u64::from(card.usable_mib);
    let range = card.notes.split("range ").nth(1).and_then(|rest| {
        let mut ends = rest.split([' ', ';', ',']).next()?.split('-');
        Some((ends.next()?.parse::<u64>().ok()?, ends.next()?.parse::<u64>().ok()?))
    });
    range.map_or((figure, figure), |(low, high)| (low.min(figure), high.max(figure)))
}

/// A network of the zoo, as its source says.
struct Declared {
    name: String,
    blueprint: Blueprint,
    train: Written,
}

impl Declared {
    /// Returns the networks of the zoo that are trained, by name, read from its sources.
    fn all() -> Vec<Declared> {
        let folder = format!("{}/src", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let texts: Vec<Text> = files.map(|file| Text::read(&read_to_string(file).unwrap()).unwrap()).collect();
        let mut blocks = Text::default();
        texts.iter().for_each(|text| blocks.add_blocks(text));
        let mut all = Vec::new();
        for mut text in texts {
            let names: Vec<String> = text.names().iter().map(ToString::to_string).collect();
            text.add_blocks(&blocks);
            for name in names {
                let declared = text.declared(Some(&name), &Overrides::default()).unwrap();
                if let Some(train) = declared.train {
                    all.push(Declared { name, blueprint: declared.blueprint, train });
                }
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    fn plan(&self) -> Planned {
        let written = Written { batch: Some(1), ..self.train.clone() };
        Planned::new(&self.blueprint, &written, 1, [true, false]).unwrap()
    }

    /// Returns a plan with the optimizer and the formats of PyTorch's peaks.
    fn plan_with_momentum(&self) -> Planned {
        let mut blueprint = self.blueprint.clone();
        blueprint.training.as_mut().unwrap().moments = Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::DEFAULT }).moments();
        let train = Written { precision: Precision::F32, ..self.train.clone() };
        Declared { name: self.name.clone(), blueprint, train }.plan()
    }
}

/// The answers for one network, on all cards, at batches within a tenth of the largest.
#[derive(Default)]
struct Answers {
    asked: u64,
    wrong_yes: u64,
    wrong_no: u64,
}

impl Answers {
    fn of(name: &str, plan: &Planned, rooms: &[Room]) -> Answers {
        let mut answers = Answers::default();
        for room in rooms {
            let [rule, least, most] =
                [room.rule, room.least, room.most].map(|bytes| plan.largest_batch(&[room.card], bytes));
            // The answers at the limit are those of the step at that batch.
            let fits = |batch: u64| plan.at(batch).unwrap().budget(&[room.card]).unwrap()[Line::Arena] <= room.rule;
            assert!(rule == 0 || fits(rule) && !fits(rule + 1), "{name} on {}: {rule}", room.card.slug);
            let (from, to) = ((9 * rule / 10).max(1), (11 * rule).div_ceil(10).max(rule + 1));
            answers.asked += to + 1 - from;
            answers.wrong_yes += rule.saturating_sub(least.max(from - 1));
            answers.wrong_no += most.min(to).saturating_sub(rule);
        }
        answers
    }

    /// Returns the share of wrong answers, in percent.
    fn percent(&self) -> f64 {
        100.0 * (self.wrong_yes + self.wrong_no) as f64 / self.asked as f64
    }

    fn row(&self, name: &str) -> String {
        let Answers { asked, wrong_yes, wrong_no } = self;
        format!("| `{name}` | {asked} | {wrong_yes} | {wrong_no} | {:.1} % |\n", self.percent())
    }
}

/// A network of which PyTorch's peaks at two batches are known: SGD with momentum, in f32.
struct Peaks {
    network: &'static str,
    /// Batch and bytes.
    at: [(u64, u64); 2],
}

impl Peaks {
    const FILES: [(&str, &str); 7] = [
        ("AlexNet", "alexnet"),
        ("Gpt2", "gpt2_small_sdpa_efficient"),
        ("MobileNetV2", "mobilenet_v2"),
        ("ResNet18", "resnet18"),
        ("ResNet50", "resnet50"),
        ("UNet", "unet"),
        ("Vgg16", "vgg16"),
    ];

    fn all() -> impl Iterator<Item = Peaks> {
        Peaks::FILES.into_iter().map(|(network, file)| {
            let figures: Value = serde_json::from_str(&text(&format!("tests/truth/models/{file}.json"))).unwrap();
            let batches = figures["batches"].as_object().unwrap().values();
            let peak = |figures: &Value| {
                let runs = figures["training_step"].as_array().unwrap().iter();
                let of = |run: &&Value| run["optimizer"] == "sgd_momentum" && run["zero_grad"] == "set_to_none";
                let bytes = runs.filter(of).map(|run| run["peak_bytes"].as_u64().unwrap()).min().unwrap();
                (figures["batch"].as_u64().unwrap(), bytes)
            };
            let mut at: Vec<_> = batches.map(peak).collect();
            at.sort_unstable();
            Peaks { network, at: at.try_into().unwrap() }
        })
    }

    /// Returns the largest batch whose live tensors have at most `room` bytes. They grow by the same bytes with each sample.
    fn largest(&self, room: u64) -> u64 {
        let [(first, low), (second, high)] = self.at;
        let sample = (high - low) / (second - first);
        room.checked_sub(low).map_or(0, |more| first + more / sample)
    }
}

/// A network's answers beside PyTorch's peaks, on all cards.
struct Beside {
    cards: usize,
    /// Cards on which PyTorch's tensors of a larger batch would fit.
    refused: usize,
    /// Cards on which a batch is accepted whose tensors PyTorch has no room for.
    accepted: usize,
    /// The largest batch in shares of PyTorch's: the least, and the most.
    shares: [f64; 2],
}

impl Beside {
    fn of(plan: &Planned, peaks: &Peaks, rooms: &[Room]) -> Beside {
        let mut beside = Beside { cards: 0, refused: 0, accepted: 0, shares: [f64::MAX, 0.0] };
        for room in rooms {
            // PyTorch takes at least as much of the card besides its tensors.
            let (ours, torch) = (plan.largest_batch(&[room.card], room.rule), peaks.largest(room.most));
            if torch == 0 {
                continue;
            }
            beside.cards += 1;
            beside.refused += usize::from(ours < torch);
            beside.accepted += usize::from(ours > torch);
            let share = ours as f64 / torch as f64;
            beside.shares = [beside.shares[0].min(share), beside.shares[1].max(share)];
        }
        beside
    }
}

/// The table of contexts.
fn contexts_table() -> String {
    let spread = Spread::new();
    let mut text = String::from(
        "| card | context, read, MiB | by the rule | reserve | process besides its arena, at least | at most | spare, % of the card |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for context in Context::all() {
        let card = context.card;
        let [least, most] = spread.reserve(card).unwrap().map(|bytes| bytes / MIB);
        let reserve = card.reserve() / MIB;
        let read = if context.least < context.most {
            format!("{} to {}", context.least, context.most)
        } else {
            format!("{}", context.least)
        };
        let percent = 100.0 * (reserve - least) as f64 / f64::from(card.usable_mib);
        writeln!(
            text,
            "| {} | {read} | {:.0} | {reserve} | {least} | {most} | {percent:.1} |",
            card.short_name,
            context.rule()
        )
        .unwrap();
    }
    text
}

/// The table of what a wrong "no" may leave unused, by the size of cards.
fn spare_table(rooms: &[Room]) -> String {
    let mut text = String::from(
        "| cards | how many | unused MiB, at most | % of the card, median | at most |\n| --- | ---: | ---: | ---: | ---: |\n",
    );
    for (name, from, to) in [
        ("below 5 GiB", 0, 5),
        ("5 to 9 GiB", 5, 9),
        ("9 to 17 GiB", 9, 17),
        ("17 to 50 GiB", 17, 50),
        ("50 GiB and more", 50, 1024),
    ] {
        let of = |room: &&Room| (from << 30..to << 30).contains(&room.card.usable());
        let unused: Vec<u64> = rooms.iter().filter(of).map(|room| room.unused()).collect();
        let mut shares: Vec<f64> =
            rooms.iter().filter(of).map(|room| room.unused() as f64 / room.card.usable() as f64).collect();
        shares.sort_by(f64::total_cmp);
        let most = unused.iter().max().unwrap() / MIB;
        let [median, highest] = [shares[shares.len() / 2], shares[shares.len() - 1]].map(|share| 100.0 * share);
        writeln!(text, "| {name} | {} | {most} | {median:.1} | {highest:.1} |", unused.len()).unwrap();
    }
    text
}

/// The table of measured processes.
fn processes_table() -> String {
    let reserve = find("h100-sxm").unwrap().reserve() / MIB;
    let mut text = String::from(
        "| process | arena, MiB | process, measured | budget | spare | % of the card |\n| --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for process in Process::all() {
        let Process { network, arena, measured } = &process;
        let budget = arena + reserve as f64;
        let spare = budget - measured;
        assert!(spare > 0.0, "{network}: a wrong \"yes\"");
        let percent = 100.0 * spare / f64::from(find("h100-sxm").unwrap().usable_mib);
        writeln!(text, "| {network} | {arena} | {measured} | {budget} | {spare} | {percent:.2} |").unwrap();
    }
    text
}

/// The table of PyTorch's peaks.
fn pytorch_table(rooms: &[Room], all: &[Declared]) -> String {
    let mut text = String::from(
        "| network | cards | \"no\" where PyTorch's tensors fit | \"yes\" where they do not | largest batch, as a share of PyTorch's |\n\
         | --- | ---: | ---: | ---: | ---: |\n",
    );
    for peaks in Peaks::all() {
        let network = all.iter().find(|network| network.name == peaks.network).unwrap();
        let Beside { cards, refused, accepted, shares } = Beside::of(&network.plan_with_momentum(), &peaks, rooms);
        let [least, most] = shares;
        writeln!(text, "| `{}` | {cards} | {refused} | {accepted} | {least:.2} to {most:.2} |", peaks.network).unwrap();
    }
    text
}

#[test]
fn figures_of_the_page_are_true() {
    let rooms = Room::all();
    // No answer rests on memory that a process was seen to take, nor on more than a card was seen to have.
    for room in &rooms {
        assert!(room.least >= room.rule, "{}: a \"yes\" may be wrong", room.card.slug);
    }
    pages::check(PAGE, "contexts", &contexts_table());
    pages::check(PAGE, "processes", &processes_table());
    pages::check(PAGE, "spare", &spare_table(&rooms));
}

/// Some networks at a time, since all of them take minutes.
#[test]
fn rows_of_some_networks_are_true() {
    let rooms = Room::all();
    let page = text("docs/reference/exactness.md");
    for network in
        Declared::all().iter().filter(|network| ["LeNet5", "ResNet18", "SqueezeNet11", "Vae"].contains(&&*network.name))
    {
        let row = Answers::of(&network.name, &network.plan(), &rooms).row(&network.name);
        assert!(page.contains(&row), "the page has another row than {row}");
    }
}

/// All networks of the zoo on all cards: minutes in release mode.
#[test]
#[ignore = "takes minutes"]
fn all_rows_are_true() {
    let rooms = Room::all();
    let all = Declared::all();
    let mut text = String::from(
        "| network | answers near a limit | wrong \"yes\" | wrong \"no\" | share |\n| --- | ---: | ---: | ---: | ---: |\n",
    );
    let (mut wrong_yes, mut percent) = (0, 0.0);
    for network in &all {
        let answers = Answers::of(&network.name, &network.plan(), &rooms);
        text += &answers.row(&network.name);
        wrong_yes += answers.wrong_yes;
        percent += answers.percent() / all.len() as f64;
    }
    writeln!(text, "| all, mean share | | {wrong_yes} | | {percent:.1} % |").unwrap();
    pages::check(PAGE, "answers", &text);
    pages::check(PAGE, "pytorch", &pytorch_table(&rooms, &all));
}

/// The backward pass is ordered for the batch of a step, so that the step at another batch is another program: its largest batch does not depend on
/// the batch from which it is asked.
#[test]
fn the_largest_batch_is_that_of_the_step_at_that_batch() {
    let card = find("rtx3060").unwrap();
    let room = card.usable() - card.reserve();
    for mut network in Declared::all() {
        if !["Generator", "SqueezeNet11", "Vgg11Bn", "DistilBertClassifier"].contains(&&*network.name) {
            continue;
        }
        let once = network.plan().largest_batch(&[card], room);
        network.blueprint.order_for(None);
        let plan = network.plan();
        let largest = plan.largest_batch(&[card], room);
        let fits = |batch: u64| plan.at(batch).unwrap().budget(&[card]).unwrap()[Line::Arena] <= room;
        assert!(fits(largest) && !fits(largest + 1), "{}: {largest}", network.name);
        assert_eq!(plan.at(100).unwrap().largest_batch(&[card], room), largest, "{}", network.name);
        assert!(once <= largest, "{}: {once}", network.name);
        // `batch: Largest` takes it.
        let found = network.blueprint.largest_fitted(&plan.sizes(&[card]), room).unwrap().unwrap();
        assert_eq!(found.batch, largest, "{}", network.name);
    }
}
