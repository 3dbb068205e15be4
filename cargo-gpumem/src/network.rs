//! A network that was built, and one that has no answer.

use crate::Failure;
use gpumem_core::lower::Blueprint;
use gpumem_core::report::Written;

/// A network that was built.
#[derive(Clone)]
pub struct Network {
    /// `Vgg16`, or `Vgg16<64>` for an instance of a network that is generic over its batch.
    pub name: String,
    /// The name. If another network has it too, it is followed by the package or the place.
    pub label: String,
    /// The package that it is in. `None` if that is not in the workspace.
    pub package: Option<String>,
    /// The file in which it is declared, as the compiler got it. The next field is the line of its batch.
    pub file: String,
    pub line: u64,
    /// The file and the line of the declaration. They differ from the place of an instance.
    pub declared: (String, u64),
    pub blueprint: Blueprint,
    /// True if `blueprint` is that of the largest of several training steps. The record of a generic network does not name that step.
    pub is_largest: bool,
    pub train: Option<Written>,
    pub infer: Option<Written>,
}

impl Network {
    /// Returns the settings of one of its programs, and true if that is the training step. Inference takes those of `TRAIN` if there is no `INFER`.
    pub fn program(&self, inference: bool) -> Result<(&Written, bool), Failure> {
        match (inference, &self.train, &self.infer) {
            (false, Some(train), _) => Ok((train, true)),
            (false, None, Some(infer)) | (true, _, Some(infer)) => Ok((infer, false)),
            (true, Some(train), None) => Ok((train, false)),
            (_, None, None) => Err(format!("`{}` says neither TRAIN nor INFER", self.name).into()),
        }
    }
}

/// A network, or one of its programs, without an answer.
pub struct LeftOut {
    /// The name in tables.
    pub label: String,
    pub name: String,
    /// The program, `train` or `infer`. `None` if the whole network is left out.
    pub program: Option<&'static str>,
    pub package: Option<String>,
    pub file: String,
    pub line: u64,
    /// The reason, as the end of a message that begins with the name.
    pub why: String,
}

impl LeftOut {
    /// Returns an entry for a whole network.
    pub fn network(network: &Network, why: String) -> LeftOut {
        LeftOut {
            label: network.label.clone(),
            name: network.name.clone(),
            program: None,
            package: network.package.clone(),
            file: network.file.clone(),
            line: network.line,
            why,
        }
    }
}

/// True if an instance of a network that is generic over its batch was built.
pub fn has_instance(networks: &[Network], generic: &Network) -> bool {
    let is_instance =
        |other: &&Network| other.name.strip_prefix(&generic.name).is_some_and(|rest| rest.starts_with('<'));
    networks.iter().filter(is_instance).any(|other| other.declared == generic.declared)
}
