"""Prints every data set of an HDF5 file, as h5py shows it, as one JSON line: name, shape, dtype, values in row-major order."""
import json
import sys

import h5py


def show(name, item):
    if isinstance(item, h5py.Dataset):
        values = item[()]
        print(json.dumps({"name": name, "shape": list(item.shape), "dtype": str(item.dtype),
                          "stands_for": item.attrs.get("dtorch_dtype", b"").decode(),
                          "values": values.reshape(-1).tolist()}))


with h5py.File(sys.argv[1]) as file:
    file.visititems(show)
