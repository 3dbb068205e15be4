//! Calibration: measurement of a card's memory, written as a row for the table of cards.

use crate::device::Cuda;
use crate::error::failure;
use crate::libraries::preflight::Versions;
use crate::memory_log::{Records, Stages, network};
use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
use gpumem_core::cards::{ALL, Card};
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, Type};
use gpumem_core::layers::arguments::Argument;
use gpumem_core::layers::{Entry, Written};
use gpumem_core::lower::{Options, Term, Training, lower, tables};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::budget::{Line, pack_at};
use gpumem_core::memory::levels::Level;
use gpumem_core::memory::place::{place, share};
use gpumem_core::operation::Operations;
use gpumem_core::run::device::Job;
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Precision, Update};
use std::fmt;

/// Measurements of a card. [`Display`](fmt::Display) writes them as a row of the table of cards, `gpumem-core/data/cards.csv`. Columns that a
/// program cannot find out are left blank.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Calibration {
    /// The card's name, as the driver reports it.
    pub name: String,
    /// The row of the table that matches this card by name and memory; `None` if no row matches.
    pub card: Option<&'static Card>,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Bytes that a process sees as the card's total memory.
    pub usable: u64,
    /// Bytes of a bare context with the smallest limits. `None` if NVML does not report them, or if the context was made elsewhere in the process.
    pub context: Option<u64>,
    /// Bytes of the context that lowering the limits of stack, heap and `printf` freed. `None` if unknown.
    pub given_back: Option<u64>,
    /// Bytes that loading a small network with products and convolutions took. `None` if other processes used the card meanwhile, or if this
    /// process had loaded a network before and no other process has measured one.
    pub probe: Option<Stages>,
    /// The most bytes outside arena and context that any network took on this card with this driver and these libraries. `None` if unknown.
    pub most_beside: Option<u64>,
    /// The driver's version in its package's spelling; `None` if NVML does not report it.
    pub driver: Option<String>,
    /// Versions of CUDA's libraries.
    pub versions: Versions,
}

impl Calibration {
    /// Returns the card's name in the table, or a suggestion for one if the table lacks the card.
    pub fn slug(&self) -> String {
        match self.card {
            Some(card) => card.slug.into(),
            None => guess(&self.name),
        }
    }

    /// Returns the bytes that the card takes outside an arena: the context and the most that a network took. `None` if either is unknown.
    pub fn reserve(&self) -> Option<u64> {
        Some(self.context?.saturating_add(self.most_beside?))
    }

    /// Returns the parts of the reserve, in bytes, as text.
    fn notes(&self) -> String {
        let number = |bytes: Option<u64>| bytes.map_or("unknown".into(), |bytes| bytes.to_string());
        let mut parts = vec![
            format!("context {}", number(self.context)),
            format!("given back by limits {}", number(self.given_back)),
        ];
        if let Some(Stages { handles, trials, modules, graphs, .. }) = self.probe {
            parts.push(format!("probe: handles {handles}, trials {trials}, modules {modules}, graphs {graphs}"));
        }
        parts.push(format!("most beside arena and context {}", number(self.most_beside)));
        format!("bytes: {}", parts.join("; "))
    }

    fn source(&self) -> String {
        let version = |name: &str, version: Option<(i32, i32)>| {
            version.map_or(format!("no {name}"), |(major, minor)| format!("{name} {major}.{minor}"))
        };
        let Versions { cuda, compiler, products, convolutions } = self.versions;
        let driver = self.driver.as_deref().unwrap_or("unknown");
        let libraries = [("CUDA", cuda), ("NVRTC", compiler), ("cuBLASLt", products), ("cuDNN", convolutions)];
        let libraries = libraries.map(|(name, found)| version(name, found)).join("; ");
        format!("gpumem::calibrate; driver {driver}; {libraries}")
    }
}

/// Writes a row with the columns of the table.
impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |field: fn(&Card) -> Option<String>| self.card.and_then(field).unwrap_or_default();
        let fields = [
            self.slug(),
            String::new(),
            self.card.map_or(self.name.clone(), |card| card.name.into()),
            known(|card| Some(card.architecture.name().into())),
            format!("{}.{}", self.capability.0, self.capability.1),
            known(|card| Some(card.spec_mib.to_string())),
            // Rounded down to whole MiB.
            (self.usable >> 20).to_string(),
            "measured".into(),
            self.source(),
            known(|card| card.is_unified().then(|| card.host_mib.to_string())),
            known(|card| card.is_unified().then(|| card.host_source.into())),
            known(|card| Some(card.memory.into())),
            known(|card| Some(card.bus_bits?.to_string())),
            known(|card| Some(card.bandwidth_gbs?.to_string())),
            known(|card| Some(card.host_link.into())),
            self.multiprocessors.to_string(),
            known(|card| Some(card.cuda_cores?.to_string())),
            known(|card| Some(card.fp32_tflops?.to_string())),
            known(|card| Some(card.tensor_fp16_tflops?.to_string())),
            known(|card| card.has_multicast.then(|| "yes".into())),
            self.notes(),
        ];
        f.write_str(&fields.map(quoted).join(","))
    }
}

/// Returns a field in CSV syntax, quoted if it needs quotes.
fn quoted(field: String) -> String {
    let is_plain = !field.contains([',', '"', '\n', '\r']);
    if is_plain { field } else { format!("\"{}\"", field.replace('"', "\"\"")) }
}

/// Returns the words of a name in lower case, without the vendor's.
fn words(name: &str) -> Vec<String> {
    let all = name.split(|letter: char| !letter.is_ascii_alphanumeric()).map(str::to_ascii_lowercase);
    all.filter(|word| !word.is_empty() && !["nvidia", "geforce", "tesla"].contains(&word.as_str())).collect()
}

fn guess(name: &str) -> String {
    words(name).join("-")
}

impl Cuda {
    /// Returns the row of the table of cards that matches this card by name and memory; `None` if no row does.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver does not answer.
    pub fn row(&self) -> Result<Option<&'static Card>, Error> {
        let (_, usable) = self.memory()?;
        Ok(find(&self.name()?, usable))
    }
}

/// Returns the row of the table whose name begins with these words, or begins them, and whose memory is nearest. Drivers report totals that differ
/// by less than a twentieth.
fn find(name: &str, usable: u64) -> Option<&'static Card> {
    let given = words(name);
    let is_called = |card: &&Card| {
        let own = words(card.name);
        !given.is_empty() && (own.starts_with(&given) || given.starts_with(&own))
    };
    let seen = |card: &Card| u64::from(card.usable_mib) << 20;
    let is_as_large = |card: &&Card| seen(card).abs_diff(usable) <= usable / 20;
    // Among rows of similar memory, the one with the most similar name.
    let distance = |card: &&Card| (words(card.name).len().abs_diff(given.len()), seen(card).abs_diff(usable));
    ALL.iter().filter(is_called).filter(is_as_large).min_by_key(distance)
}

/// Measures the bytes that a card takes outside an arena, by loading a small network: context, library handles, the libraries' kernels, modules and
/// graphs. In a process that has loaded a network before, it reports what was measured then, or by other processes.
///
/// Nothing else should run on the card meanwhile. The result is written as a row of the table of cards:
///
/// ```no_run
/// let card = gpumem_cuda::Cuda::new(0)?;
/// println!("{}", gpumem_cuda::calibrate(&card)?);
/// # Ok::<(), gpumem_core::error::Error>(())
/// ```
///
/// # Errors
/// [`Error::Memory`] if even the small network does not fit; [`Error::Device`] if the driver or a library fails.
pub fn calibrate(card: &Cuda) -> Result<Calibration, Error> {
    let records = Records::of(&card.card)?;
    let job = probe()?;
    let key = network(&job, &card.card);
    let (session, stages) = card.load_measured(job)?;
    drop(session);
    let record = records.get();
    let (name, (_, usable)) = (card.name()?, card.memory()?);
    let multiprocessors = card.card.context.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    let multiprocessors = multiprocessors.map_err(failure("asking for the number of multiprocessors"))?;
    let context = card.context.or(record.context);
    Ok(Calibration {
        card: find(&name, usable),
        name,
        capability: card.card.capability,
        multiprocessors: u32::try_from(multiprocessors).unwrap_or(0),
        usable,
        context: context.map(|context| context.bytes),
        given_back: context.map(|context| context.given_back),
        probe: stages.or(record.of(&key)),
        most_beside: record.most_beside().max(stages.map(|stages| stages.beside())),
        driver: card.card.driver.clone(),
        versions: Versions::found(),
    })
}

/// Returns a small network with a convolution and a product, trained on two samples.
///
/// # Errors
/// None, unless this library is damaged.
#[doc(hidden)]
pub fn probe() -> Result<Job, Error> {
    const BATCH: u64 = 2;
    let damaged = || Error::Damaged("the network that cards are calibrated with has no plan");
    let mut graph = Graph::default();
    let mut node = graph.input(Type::numbers(Shape::new(&[8, 16, 16]))).map_err(|_| damaged())?;
    let number = |value| Written::positional(Argument::Integer(value));
    for (layer, written) in
        [("Conv2d", vec![number(16), number(3)]), ("Relu", vec![]), ("Flatten", vec![]), ("Linear", vec![number(10)])]
    {
        let entry = Entry::find(layer).ok_or_else(damaged)?;
        node = graph.layer(&entry, &written, &[node], layer.to_lowercase(), None).value.ok_or_else(damaged)?;
    }
    let training = Training {
        loss: &[Term::CROSS_ENTROPY],
        moments: 1,
        update: Update::Fused,
        skips_overflow: false,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    let planned = |training| {
        let program = lower(&graph, &[node], &Options { training }).map_err(|_| damaged())?;
        let tables = tables(&program);
        let (tables, precision) = (&tables.as_tables(), Precision::F32);
        let (budget, offsets) = pack_at(tables, BATCH, precision).map_err(|_| damaged())?;
        let (program, offsets, level) = (&program.encode(), &offsets, Level::ONLY);
        let placed = place(&Compiled { program, tables, offsets, budget, batch: BATCH, precision, level })?;
        Ok::<_, Error>((placed, budget))
    };
    let ((train, budget), (mut infer, of_infer)) = (planned(Some(training))?, planned(None)?);
    let (planned, activations) = (budget[Line::Arena], of_infer[Line::Activations]);
    let reserve = budget[Line::Reserve];
    let arena = share(&train, &mut infer, planned, activations)?;
    Ok(Job {
        name: "calibration",
        arena,
        reserve,
        batch: BATCH,
        precision: Precision::F32,
        train: Some(train),
        evaluation: None,
        others: Vec::new(),
        infer,
        served: None,
        optimizer: Optimizer::Sgd(Sgd::DEFAULT),
        tf32: false,
        deterministic: false,
        settings: 0,
        operations: &Operations::NONE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::cards::{A100_40GB, COLUMNS, H200, RTX_3060, T4};

    fn calibration() -> Calibration {
        let stages = Stages { arena: 2 << 20, handles: 1, trials: 2, modules: 3, graphs: 4, process: None };
        Calibration {
            name: "NVIDIA GeForce RTX 3060".into(),
            card: Some(&RTX_3060),
            capability: (8, 6),
            multiprocessors: 28,
            usable: (11_906 << 20) + 5,
            context: Some(100),
            given_back: Some(50),
            probe: Some(stages),
            most_beside: Some(20),
            driver: Some("580.95.05".into()),
            versions: Versions::default(),
        }
    }

    #[test]
    fn a_row_has_the_columns_of_the_table() {
        let row = calibration().to_string();
        let expected = "rtx3060,,GeForce RTX 3060 12GB,Ampere,8.6,12288,11906,measured,gpumem::calibrate; driver 580.95.05; \
                        no CUDA; no NVRTC; no cuBLASLt; no cuDNN,,,GDDR6,192,360,PCIe 4.0 x16,28,3584,12.74,25.5,,";
        assert!(row.starts_with(expected), "{row}");
        let notes = "\"bytes: context 100; given back by limits 50; probe: handles 1, trials 2, modules 3, graphs 4; most \
                     beside arena and context 20\"";
        assert!(row.ends_with(notes), "{row}");
        let outside = row.split('"').step_by(2).collect::<String>();
        assert_eq!(outside.split(',').count(), COLUMNS.len(), "{row}");
    }

    #[test]
    fn a_card_that_is_in_no_table_gets_a_row_too() {
        let (card, name) = (None, "NVIDIA GeForce RTX 9999, \"big\"".into());
        let unknown = Calibration { card, name, context: None, probe: None, most_beside: None, ..calibration() };
        assert_eq!(unknown.slug(), "rtx-9999-big");
        let row = unknown.to_string();
        assert!(
            row.starts_with("rtx-9999-big,,\"NVIDIA GeForce RTX 9999, \"\"big\"\"\",,8.6,,11906,measured,"),
            "{row}"
        );
        assert!(row.contains("context unknown"), "{row}");
        assert_eq!(unknown.reserve(), None);
        assert_eq!(calibration().reserve(), Some(120));
    }

    #[test]
    fn cards_are_known_by_the_names_that_drivers_have() {
        let find = |name, card: &Card| find(name, u64::from(card.usable_mib) << 20).map(|card| card.slug);
        assert_eq!(find("Tesla T4", &T4), Some("t4"));
        assert_eq!(find("NVIDIA H200", &H200), Some("h200"));
        assert_eq!(find("NVIDIA GeForce RTX 3060", &RTX_3060), Some("rtx3060"));
        assert_eq!(find("NVIDIA A100-SXM4-40GB", &A100_40GB), Some("a100-40gb"));
        assert_eq!(find("NVIDIA GeForce RTX 3060", &T4), None, "as little memory as no such card");
        assert_eq!(find("Simulated card", &T4), None);
    }

    #[test]
    fn the_probe_has_a_plan() {
        let job = probe().unwrap();
        assert!(job.arena > 0 && job.train.is_some());
    }
}
