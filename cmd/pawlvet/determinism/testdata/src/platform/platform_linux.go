package platform // want `file for one platform`

const pageSize = 4096
