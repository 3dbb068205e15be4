//! Reads what `torch.export.save` wrote: a zip archive of JSON and of raw numbers. Nothing in it is executed.

mod archive;
mod convert;
mod elements;
mod expression;
mod schema;

use crate::error::Error;
use crate::model::Model;
use archive::{Archive, damaged};
pub(crate) use elements::Elements;
use expression::Symbols;
use schema::{Document, Hint, InputSpec, SymInt};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The version of the schema whose documents are read: others of the same first number differ in additions only.
const SCHEMA: u64 = 8;

/// An exported program, read but not yet converted, so that it can be converted for several batch sizes.
pub struct Pt2 {
    path: PathBuf,
    document: Document,
    stored: Vec<convert::Stored>,
}

impl Pt2 {
    /// Reads a file.
    ///
    /// # Errors
    /// Refuses files of another format, damaged ones, and those of another version of the schema.
    pub fn open(path: &Path) -> Result<Pt2, Error> {
        let mut archive = Archive::open(path)?;
        archive.check_byte_order()?;
        let document: Option<Document> = archive.json("models/model.json")?;
        let document = document.ok_or_else(|| damaged(path, "`models/model.json` is missing"))?;
        let version = document.schema_version;
        if version.major != SCHEMA {
            return Err(Error::new(
                path,
                format!(
                    "is of schema {}.{}, and {SCHEMA}.x is read; export the model again with PyTorch 2.8 or later: \
                     `torch.export.save(torch.export.export(model.train(), (torch.randn(2, 3, 224, 224),)), \"model.pt2\")`",
                    version.major, version.minor
                ),
            ));
        }
        let stored = convert::stored(&mut archive, &document, path)?;
        Ok(Pt2 { path: path.into(), document, stored })
    }

    /// Opens the weights of the file.
    pub(crate) fn elements(&self) -> Result<Elements, Error> {
        Elements::open(&self.path)
    }

    /// Returns the symbols of the file, such as a batch size that it leaves open.
    pub fn symbols(&self) -> Vec<String> {
        let graph = &self.document.graph_module.graph;
        let sizes = graph.tensor_values.values().flat_map(|tensor| &tensor.sizes);
        let named = sizes.filter_map(|size| match size {
            SymInt::AsExpr(expression) => expression::multiple(&expression.expr_str).map(|(_, name)| name.to_string()),
            SymInt::AsInt(_) => None,
        });
        named.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the symbol that is the first dimension of the first input. `None` if that is a number.
    pub fn batch_symbol(&self) -> Option<&str> {
        let first = self.document.graph_module.signature.input_specs.iter().find_map(|spec| match spec {
            InputSpec::UserInput { arg: schema::Arg::AsTensor(tensor) } => Some(&tensor.name),
            _ => None,
        })?;
        match self.document.graph_module.graph.tensor_values.get(first)?.sizes.first()? {
            SymInt::AsExpr(expression) => expression::symbol(&expression.expr_str),
            SymInt::AsInt(_) => None,
        }
    }

    /// Converts the program. `batch` and `others` set symbols; those that are not set have the value with which the model was exported.
    /// `batch` changes nothing in a file whose batch is a number: see [`Model::batch`].
    ///
    /// # Errors
    /// Refuses values out of a symbol's range, unknown symbols, and programs whose sizes depend on data.
    pub fn model(&self, batch: Option<u64>, others: &[(&str, u64)]) -> Result<Model, Error> {
        let symbols = self.bind(batch, others)?;
        let mut model = convert::model(&self.document, &self.stored, &symbols, &self.path)?;
        model.has_symbolic_batch = self.batch_symbol().is_some();
        Ok(model)
    }

    /// Gives every symbol a value.
    fn bind(&self, batch: Option<u64>, others: &[(&str, u64)]) -> Result<Symbols, Error> {
        let mut symbols = self.hints();
        let batch = batch.and_then(|batch| Some((self.batch_symbol()?, batch)));
        for (name, value) in others.iter().copied().chain(batch) {
            let known: Vec<&String> = symbols.keys().collect();
            if !symbols.contains_key(name) {
                let what = format!("has no symbol `{name}`; it has {known:?}");
                return Err(Error::new(&self.path, what));
            }
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            let range = self.document.range_constraints.get(name);
            let least = range.and_then(|range| range.min_val).unwrap_or(0);
            let most = range.and_then(|range| range.max_val).unwrap_or(i64::MAX);
            if !(least..=most).contains(&value) {
                let most = if most == i64::MAX { String::from("without limit") } else { format!("to {most}") };
                let what = format!("was exported for `{name}` from {least} {most}, and {value} is asked for");
                return Err(Error::new(&self.path, what));
            }
            symbols.insert(name.to_string(), value);
        }
        Ok(symbols)
    }

    /// Returns the values of symbols in the example with which the model was exported.
    fn hints(&self) -> Symbols {
        let graph = &self.document.graph_module.graph;
        let sizes = graph.tensor_values.values().flat_map(|tensor| &tensor.sizes).chain(graph.sym_int_values.values());
        let hints = sizes.filter_map(|size| match size {
            SymInt::AsExpr(expression) => match (expression::multiple(&expression.expr_str), &expression.hint) {
                (Some((factor, name)), Some(Hint::AsInt(hint))) => Some((name.to_string(), hint / factor)),
                _ => None,
            },
            SymInt::AsInt(_) => None,
        });
        hints.collect()
    }
}
